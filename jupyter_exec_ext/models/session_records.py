"""Records of sessions: a session, the request for one, its kernel's use, its ports, and the kernels to choose from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

#: From the least isolation of a kernel to the most.
ISOLATION_LEVELS = ("none", "landlock", "sandbox", "remote")


#: Values of `auto_checkpoint`.
AUTO_CHECKPOINT_OFF, AUTO_CHECKPOINT_EACH_RUN = "off", "each_run"


class SessionState(str, Enum):
    """State of a session."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    RESTARTING = "restarting"
    ENDED = "ended"

    __str__ = str.__str__  # `str` and f-strings show the value in every Python version


@dataclass(frozen=True, slots=True)
class Restore:
    """Return of a session to a checkpoint. What ran between the two belongs to a line of history that was left.

    Parameters
    ----------
    checkpoint : str
        Id of the checkpoint.
    at : str
        In UTC.
    after : str or None
        Id of the last execution before the checkpoint.
    before : str or None
        Id of the last execution before the return.
    """

    checkpoint: str
    at: str
    after: str | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A kernel and its state, under our own id.

    Parameters
    ----------
    isolation : str
        Isolation of the kernel: ``none`` (it has the rights of the server's user), ``landlock``, ``sandbox`` or
        ``remote``.
    kernel_starts : int
        Number of kernels that were started for the session. When the number differs between two executions, the
        variables of the first were gone in the second.
    attached : bool
        The kernel is somebody else's, such as a notebook's: it was there before the session and stays when it ends.
    grant_id : str or None
        Grant by which a scoped token has attached to the kernel; the session ends with it.
    ended_reason : str or None
        One sentence, once `state` is ``ended``.
    approved_kinds : sequence of str
        Kinds of code that a person has approved for all of the session: see `ApprovalFinding.kind`.
    waits_for : str or None
        ``input`` or ``approval``, while the session stands still until a person acts.
    last_outcome : str or None
        State in which the session's last execution ended, such as ``timeout``; for an error, with the exception's name:
        ``error: KeyError``. None before the first end.
    open_ports : sequence of int
        Ports of the kernel's programs that can be reached through the server.
    wanted_rules : sequence of str
        Network rules that would allow what was refused to the kernel's programs, oldest first; the newest 20.
    restores : sequence of Restore
        Returns to checkpoints, oldest first; the newest 200.
    branch_of : str or None
        Id of the session of which it is a branch.
    auto_checkpoint : str
        ``each_run`` if there is a checkpoint before each run, else ``off``.
    auto_checkpoint_problem : str or None
        Why the last run has none, although there should be one.
    memory_bytes : int or None
        Memory of the kernel's process, those below it and its checkpoints, if the record was requested with it. None in
        any other record, and for a kernel that does not run or runs elsewhere.
    """

    id: str
    owner: str
    kernel_name: str
    language: str
    state: SessionState
    created_at: str
    last_activity_at: str
    name: str = ""
    kernel_id: str | None = None
    kernel_starts: int = 0
    isolation: str = "none"
    idle_timeout_seconds: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    attached: bool = False
    grant_id: str | None = None
    ended_at: str | None = None
    ended_reason: str | None = None
    approved_kinds: Sequence[str] = ()
    waits_for: str | None = None
    last_outcome: str | None = None
    open_ports: Sequence[int] = ()
    wanted_rules: Sequence[str] = ()
    restores: Sequence[Restore] = ()
    branch_of: str | None = None
    auto_checkpoint: str = AUTO_CHECKPOINT_OFF
    auto_checkpoint_problem: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Use of a session's kernel and the processes below it, at one moment.

    Parameters
    ----------
    memory_bytes : int
        Memory of all together; see `Session`.
    cpu : float
        Processors in use, on average since the sample before or, for the first, since the kernel started.
    """

    at: str
    memory_bytes: int
    cpu: float


@dataclass(frozen=True, slots=True)
class SessionPort:
    """Open port of a session.

    Parameters
    ----------
    url : str
        Address for programs, which send a token in the Authorization header.
    opened_by : str
        The principal.
    opened_at : str
        In UTC.
    browser_url : str or None
        Link that opens the port in one browser, once and within 30 seconds. None in a list, and where there is none.
    browser_reason : str or None
        Why there is no link.
    """

    port: int
    url: str
    opened_by: str
    opened_at: str
    browser_url: str | None = field(default=None, repr=False)
    browser_reason: str | None = None


@dataclass(frozen=True, slots=True)
class SessionUsage:
    """Use of a session's kernel over the last hour, and its limits.

    Parameters
    ----------
    measured : bool
        False for a kernel on another machine, one that does not run, and a session that has ended.
    samples : sequence of UsageSample
        Oldest first. They are kept for an hour, as long as the session lives.
    processors : int
        Processors of the server's machine.
    max_memory_bytes, max_cpu_seconds : int or None
        Limits of the kernel's own process on its address space and its processor time; None without a limit.
    """

    measured: bool
    samples: Sequence[UsageSample]
    processors: int
    max_memory_bytes: int | None = None
    max_cpu_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """Request to create a session.

    Parameters
    ----------
    kernel_id : str or None
        A running kernel to attach to, instead of a kernel of its own; then there is no `kernel_name` and no `env`.
    isolation : str or None
        The least isolation that the kernel must have; None for what the server and the caller's policy give.
    cwd : str
        Directory that the kernel changes to, below the session's working directory; empty for that one itself.
    auto_checkpoint : str
        See `Session`.
    """

    kernel_name: str | None = None
    name: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    idle_timeout_seconds: float | None = None
    kernel_id: str | None = None
    isolation: str | None = None
    cwd: str = ""
    auto_checkpoint: str = AUTO_CHECKPOINT_OFF


@dataclass(frozen=True, slots=True)
class KernelSpecInfo:
    """An installed kernelspec, as far as a caller needs to know it.

    Parameters
    ----------
    provisioner : str
        Provisioner that starts its kernels.
    isolation : str
        Isolation of its kernels: ``none``, ``landlock``, ``sandbox`` or ``remote``.
    host_network : bool
        Whether the kernelspec asks for this machine's network, with which isolation is none.
    """

    name: str
    display_name: str
    language: str
    provisioner: str = "local-provisioner"
    isolation: str = "none"
    host_network: bool = False
