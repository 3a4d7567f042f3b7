"""Policies: limits of scoped tokens, as plain records and pure decisions.

A decision gets the numbers, and returns or raises the error that names the limit and its value. The engine counts, and
reserves places so that two requests never get the same one. `policy_parsing` reads policies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from ..errors import IsolationRequired, PolicyDenied, PolicyLimitReached
from ..models import ISOLATION_LEVELS
from .approval_patterns import NEVER, NO_APPROVAL, ApprovalRule


def _limit(default: Any, help_: str, unset: str = "no limit") -> Any:
    # `tools/make_reference.py` writes the reference of policies from these texts; `unset` stands for None there.
    return field(default=default, metadata={"help": help_, "unset": unset})


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of a token; None is no limit beyond the server's own.

    The defaults are those of the policy ``default``.
    """

    name: str = "default"
    kernelspecs: tuple[str, ...] = _limit(("*",), "names (with `*`) of the kernelspecs that may be used")
    isolation: str = _limit("none", "the least isolation of kernels: `none`, `landlock`, `sandbox` or `remote`")
    network: str | tuple[str, ...] | None = _limit(
        None,
        "the network of isolated kernels: `none` (the default), or a list of rules, which need the isolation "
        "`sandbox`; `host` says that kernels without isolation have the machine's network",
        unset="none",
    )
    secrets: tuple[str, ...] = _limit(
        (), "names of the secrets that the proxy adds to requests of a session; its rules must allow a host of each"
    )
    max_upload_bytes: int | None = _limit(None, "bytes that a session may send to the network by its rules")
    packages: str | None = _limit(
        None, "`install` lets sessions install packages of their own, which end with them", unset="no packages"
    )
    mounts: tuple[tuple[str, str], ...] = _limit((), "directories that sandboxed kernels read, by their paths inside")
    devices: tuple[str, ...] = _limit((), "devices that sandboxed kernels use: `nvidia:0`, `dri` or a path in `/dev`")
    max_sessions: int | None = _limit(5, "sessions at once")
    max_open_executions: int | None = _limit(50, "executions that are queued or running at once, in all sessions")
    max_executions_per_minute: int | None = _limit(120, "executions accepted within any 60 seconds")
    max_streams: int | None = _limit(
        100,
        "requests that are answered over time at once: event streams, waits, exports, requests to ports",
    )
    max_ports: int | None = _limit(5, "ports of one session that may be open at once; 0 for none")
    max_checkpoints: int | None = _limit(10, "checkpoints of all sessions at once; 0 for none")
    max_checkpoint_memory_bytes: int | None = _limit(
        None, "memory of all sessions together with their checkpoints, before a checkpoint is refused"
    )
    max_execution_seconds: float | None = _limit(600.0, "run time of an execution; one that names none gets this")
    max_queue_seconds: float | None = _limit(3600.0, "how long an execution may wait in its session's queue")
    max_cpu_seconds: int | None = _limit(None, "processor time of each process of a session")
    max_memory_bytes: int | None = _limit(None, "address space of each process of a session")
    max_output_bytes: int | None = _limit(8 * 1024**2, "output of an execution that its record and log keep")
    max_code_bytes: int | None = _limit(1024**2, "code of an execution")
    max_file_bytes: int | None = _limit(256 * 1024**2, "an uploaded file")
    max_session_bytes: int | None = _limit(1024**3, "the files of a session together, before an upload is refused")
    max_session_files: int | None = _limit(1000, "files of a session, before an upload is refused")
    max_stored_bytes: int | None = _limit(
        None,
        "records, event logs and spooled outputs that the store keeps, the newest; without a limit of its own, a tenth "
        "of `ExecStore.max_bytes`",
    )
    max_idle_seconds: float | None = _limit(3600.0, "how long a session may be idle until it is shut down")
    max_session_seconds: float | None = _limit(86_400.0, "how long a session may live at all")
    env: tuple[str, ...] = _limit(("*",), "names (with `*`) of the environment variables that a session may set")
    unseen_uploads: bool = _limit(
        False, "allows uploads where code needs approval, although a file may be code that no person has seen"
    )
    attach: bool = _limit(False, "allows attaching to kernels that the server already runs")
    allow_comms: bool = _limit(
        False,
        "lets clients of Jupyter's own API use comms, as widgets do; no record has what these run. Not with approvals",
    )
    approve_in_client: bool = _limit(
        False,
        "lets the user of an MCP client approve code there, too; a program with the token could answer instead",
    )
    approval: ApprovalRule = _limit(NO_APPROVAL, "the code that waits for a person's approval")  # noqa: RUF009  # a field


# --- decisions -----------------------------------------------------------------------------------------------------


def check_kernel_name(policy: Policy, kernel_name: str) -> None:
    """Check that a kernelspec is allowed; raises `PolicyDenied`."""
    if not matches(kernel_name, policy.kernelspecs):
        _deny(policy, "kernelspecs", f"allows the kernelspecs {_names(policy.kernelspecs)}, not {kernel_name!r}")


def check_kernel(policy: Policy, kernel_name: str, isolation: str, why: str = "") -> None:
    """Check that a kernel with this isolation is allowed; `why` is the reason why it has no more.

    Raises
    ------
    PolicyDenied
        If the kernelspec is not allowed.
    IsolationRequired
        If the policy requires more isolation.
    """
    check_kernel_name(policy, kernel_name)
    # The levels are in order, from the least isolation to the most.
    if ISOLATION_LEVELS.index(isolation) < ISOLATION_LEVELS.index(policy.isolation):
        raise IsolationRequired(
            f"the policy {policy.name!r} requires the isolation {policy.isolation!r}, and the kernel {kernel_name!r} "
            f"has {isolation!r}; {why or 'choose a kernelspec with more'}",
            limit=_limit_details(policy, "isolation"),
        )


def check_packages(policy: Policy) -> None:
    """Check that sessions may install packages; raises `PolicyDenied`."""
    if policy.packages is None:
        _deny(policy, "packages", "does not let sessions install packages; its administrator can set it to 'install'")


def check_attach(policy: Policy) -> None:
    """Check that running kernels may be attached; raises `PolicyDenied`."""
    if not policy.attach:
        _deny(policy, "attach", "does not let kernels be attached; create a session with a kernel of its own")


def check_env(policy: Policy, names: Collection[str]) -> None:
    """Check that a session may set environment variables; raises `PolicyDenied`.

    Some of them make a kernel run code when it starts (PYTHONWARNINGS and BROWSER do), before any approval. A policy
    that requires approval therefore allows only variables that it names in full.
    """
    asks = policy.approval.mode != NEVER
    for name in names:
        if not matches(name, policy.env):
            _deny(policy, "env", f"lets a session set {_names(policy.env)}, not {name!r}")
        if asks and name not in policy.env:
            _deny(policy, "env", f"asks for approval, so it lets a session set what it names in full, not {name!r}")


def check_upload(policy: Policy) -> None:
    """Check that a file may be uploaded; raises `PolicyDenied`.

    A kernel imports modules from its directory, even when it starts. An upload would therefore evade approval.
    """
    if policy.approval.mode != NEVER and not policy.unseen_uploads:
        text = "wants code to be approved, so it takes no files, which may be code that nobody has seen"
        _deny(policy, "unseen_uploads", text)


def check_session_count(policy: Policy, sessions: int) -> None:
    """Check that one session more than `sessions` is allowed; raises `PolicyLimitReached`."""
    _check_count(policy, "max_sessions", sessions, "sessions at once; delete one first")


def check_open_executions(policy: Policy, open_executions: int) -> None:
    """Check that one more open execution is allowed; raises `PolicyLimitReached`."""
    # The end of a running execution is not known, so the time to retry is a guess.
    text = "executions that are queued or running at once; wait for one to end"
    _check_count(policy, "max_open_executions", open_executions, text, retry_after_seconds=1.0)


def check_streams(policy: Policy, streams: int) -> None:
    """Check that one more stream is allowed; raises `PolicyLimitReached`."""
    text = (
        "requests at once that are answered over time (event streams, change feeds, waits, notebook exports); close "
        "one, or let several readers share one"
    )
    _check_count(policy, "max_streams", streams, text, retry_after_seconds=1.0)


def check_ports(policy: Policy, ports: int) -> None:
    """Check that one more open port of a session is allowed; raises `PolicyLimitReached`, or `PolicyDenied` for none.

    The requests to a port are checked with 0 `ports`.
    """
    if policy.max_ports == 0:
        _deny(policy, "max_ports", "allows no ports of sessions")
    _check_count(policy, "max_ports", ports, "open ports of a session; close one first")


def check_checkpoint_count(policy: Policy, checkpoints: int) -> None:
    """Check that one more checkpoint is allowed; raises `PolicyLimitReached`, or `PolicyDenied` for none."""
    if policy.max_checkpoints == 0:
        _deny(policy, "max_checkpoints", "allows no checkpoints")
    _check_count(policy, "max_checkpoints", checkpoints, "checkpoints at once; delete one first")


def check_checkpoint_memory(policy: Policy, used_bytes: int) -> None:
    """Check that sessions which take `used_bytes` may have one more checkpoint; raises `PolicyLimitReached`."""
    most = policy.max_checkpoint_memory_bytes
    if most is not None and used_bytes > most:
        text = (
            f"allows a checkpoint while all sessions and checkpoints take at most {most} bytes of memory, and they "
            f"take {used_bytes}; delete checkpoints, end sessions or delete large variables first"
        )
        _reached(policy, "max_checkpoint_memory_bytes", text)


def check_rate(policy: Policy, wait_seconds: float) -> None:
    """Check the rate of executions.

    Parameters
    ----------
    policy : Policy
        The limits.
    wait_seconds : float
        Time until one more execution is allowed; 0 if it is allowed now.

    Raises
    ------
    PolicyLimitReached
        If `wait_seconds` is not 0.
    """
    if wait_seconds > 0:
        text = f"allows {policy.max_executions_per_minute} executions a minute; the next in {wait_seconds:.1f} s"
        _reached(policy, "max_executions_per_minute", text, retry_after_seconds=wait_seconds)


def check_stored(policy: Policy, full_share_bytes: int | None) -> None:
    """Check that the store has room for more records.

    Parameters
    ----------
    policy : Policy
        The limits.
    full_share_bytes : int or None
        The share of the store, if records that cannot be removed take all of it; None if there is room.

    Raises
    ------
    PolicyLimitReached
        If there is no room.
    """
    if full_share_bytes is not None:
        raise PolicyLimitReached(
            f"the policy {policy.name!r} allows {full_share_bytes} bytes in the store, all of them taken by executions "
            "that have not ended; wait for one to end, or cancel it (max_stored_bytes)",
            # The policy's own value can be None: then the share is the store's default.
            limit={**_limit_details(policy, "max_stored_bytes"), "value": full_share_bytes},
            retry_after_seconds=1.0,
        )


def check_code(policy: Policy, code_bytes: int) -> None:
    """Check the size of code; raises `PolicyDenied`."""
    most = policy.max_code_bytes
    if most is not None and code_bytes > most:
        _deny(policy, "max_code_bytes", f"allows {most} bytes of code, not {code_bytes}")


def allowed_seconds(policy: Policy, limit: str, asked: float | None, default: float) -> float:
    """Return the time limit of a request.

    Parameters
    ----------
    policy : Policy
        The limits.
    limit : str
        The name of the limit's field.
    asked : float or None
        The seconds that the request asks for. More than the policy allows is denied instead of lowered, because code
        that needs an hour is of no use after a minute.
    default : float
        The seconds for a request that asks for none, lowered to the policy's limit; 0 for no limit.

    Raises
    ------
    PolicyDenied
        If the request asks for more than the policy allows.
    """
    most: float | None = getattr(policy, limit)
    if most is None:
        return default if asked is None else asked
    if asked is None:
        return min(default, most) or most  # no default at all is 0
    if asked > most or asked == 0:  # 0 asks for no limit
        _deny(policy, limit, f"allows at most {most:g} s, not {f'{asked:g} s' if asked else 'for ever'}")
    return asked


def least(values: Iterable[int | None]) -> int | None:
    """Return the smallest limit; None if there is none."""
    return min((value for value in values if value is not None), default=None)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches one of the patterns, in which ``*`` matches any text."""
    # `fnmatch` depends on the system: on Windows it ignores case.
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _names(patterns: Collection[str]) -> str:
    return ", ".join(patterns) or "none"


def _limit_details(policy: Policy, limit: str) -> dict[str, Any]:
    value = getattr(policy, limit)
    return {"policy": policy.name, "name": limit, "value": list(value) if isinstance(value, tuple) else value}


def _deny(policy: Policy, limit: str, text: str) -> NoReturn:
    raise PolicyDenied(f"the policy {policy.name!r} {text} ({limit})", limit=_limit_details(policy, limit))


def _reached(policy: Policy, limit: str, text: str, retry_after_seconds: float | None = None) -> NoReturn:
    raise PolicyLimitReached(
        f"the policy {policy.name!r} {text} ({limit})",
        limit=_limit_details(policy, limit),
        retry_after_seconds=retry_after_seconds,
    )


def _check_count(policy: Policy, limit: str, count: int, text: str, retry_after_seconds: float | None = None) -> None:
    """Check that the field `limit` allows one more than `count`."""
    most: int | None = getattr(policy, limit)
    if most is not None and count >= most:
        _reached(policy, limit, f"allows {most} {text}", retry_after_seconds)
