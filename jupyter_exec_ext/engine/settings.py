"""Engine settings: the traits of ``c.ExecEngine``, and the policies that they configure."""

from __future__ import annotations

import os
import re

from jupyter_core.paths import jupyter_data_dir
from traitlets import Bool, Dict, Enum, Float, Integer, List, TraitError, Unicode, default, validate
from traitlets.utils.bunch import Bunch

from ..auth.configured_policies import configured_policies
from ..auth.policy import Policy
from ..errors import PoliciesInvalid
from ..models import ISOLATION_LEVELS
from ..protocol.kernel_preparation import DEFAULT_NAMES
from ..protocol.record_ids import server_slug
from .kernels.provisioners import OUR_PROVISIONERS, PLAIN
from .kernels.shared_resources import DEFAULT_MAX_ALL_MESSAGES_BYTES, DEFAULT_MAX_MESSAGE_BYTES
from .packages.package_settings import PackageSettings

_WILDCARD = re.compile(r"\*(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+")


class EngineSettings(PackageSettings):
    """The engine's traits; configured as ``c.ExecEngine``."""

    default_timeout_seconds = Float(
        300.0, help="Run time of an execution whose request names none, in seconds; time in the queue is not counted."
    ).tag(config=True)
    max_timeout_seconds = Float(
        86_400.0, help="The longest run time a request may ask for, in seconds; a longer one is lowered to it."
    ).tag(config=True)
    interrupt_grace_seconds = Float(
        2.0, help="How long interrupted code may take to end before its kernel is killed, in seconds."
    ).tag(config=True)
    settle_seconds = Float(
        5.0, help="How long a kernel may be silent between the reply and the end of its output, in seconds."
    ).tag(config=True)
    kernel_start_timeout_seconds = Float(60.0, help="How long a new kernel may take until it answers, in seconds.").tag(
        config=True
    )
    kernel_transport = Enum(
        ("ipc", "tcp"),
        "ipc",
        help="How sessions' kernels are reached. 'ipc': IPython kernels of this machine through Unix sockets in "
        "Jupyter's runtime directory. These are quicker, need no ports, and other users cannot connect to them. All "
        "other kernels are reached over TCP; so are these if the directory's name is too long or its file system has "
        "no sockets. 'tcp': as the host's own kernels.",
    ).tag(config=True)
    session_idle_timeout_seconds = Float(
        3600.0,
        help="A session that runs nothing for this long is shut down, in seconds; 0 for never. A request may ask for "
        "another value.",
    ).tag(config=True)
    mcp_idle_seconds = Float(
        600.0,
        min=1.0,
        help="A session that an MCP client has made ends when the client has not used it for this long, in seconds. A "
        "policy may shorten that.",
    ).tag(config=True)
    max_sessions = Integer(
        100,
        help="How many sessions there may be at once; 0 for no limit. It is lowered to what the process's descriptors "
        "suffice for.",
    ).tag(config=True)
    max_checkpoints = Integer(
        100,
        help="How many checkpoints of sessions there may be at once; 0 for none. Each takes the memory in which it "
        "differs from its session, and a process.",
    ).tag(config=True)
    max_automatic_checkpoints = Integer(
        5,
        help="How many automatic checkpoints one session with auto_checkpoint keeps; the oldest goes first. 0 for "
        "none: then no session can have auto_checkpoint. They count in max_checkpoints.",
    ).tag(config=True)
    checkpoint_ttl_seconds = Float(
        3600.0,
        help="A checkpoint to which no session goes back, and whose session runs no code, for this long is deleted, in "
        "seconds; 0 for never. It ends with its session in any case.",
    ).tag(config=True)
    max_checkpoint_file_bytes = Integer(
        1024**3,
        help="The most bytes of a session's files that are copied with a checkpoint. Where the file system lets copies "
        "share their blocks (btrfs, XFS), nothing is copied, and this is no limit.",
    ).tag(config=True)
    max_queued_executions = Integer(1000, help="How many executions may wait in one session.").tag(config=True)
    max_code_bytes = Integer(8 * 1024 * 1024, help="The largest code an execution may have, in bytes.").tag(config=True)
    max_output_bytes = Integer(
        32 * 1024 * 1024,
        help="The output of an execution that its record and event log keep, in bytes; beyond it, they keep head and "
        "tail, the bytes left out are counted in `truncated`, and the whole goes to files (ExecStore.max_spool_bytes).",
    ).tag(config=True)
    max_message_bytes = Integer(
        DEFAULT_MAX_MESSAGE_BYTES,
        min=1024 * 1024,
        help="The largest message that is taken from a kernel, in bytes, which is also what all messages of one kernel "
        "may take in memory while they are read. A run that sends a larger one ends with the reason "
        "`message_too_large`.",
    ).tag(config=True)
    max_all_messages_bytes = Integer(
        DEFAULT_MAX_ALL_MESSAGES_BYTES,
        min=1024 * 1024,
        help="Memory that the messages of all kernels together may take while they are read, in bytes. Beyond it, "
        "the largest that is still incomplete is given up, as if it were larger than `max_message_bytes`.",
    ).tag(config=True)
    inherited_env = List(
        Unicode(),
        DEFAULT_NAMES,
        help="Names (with * as a wildcard) of the server's environment variables that kernels get. Nothing else of "
        "the server's environment reaches a kernel.",
    ).tag(config=True)
    caller_env = List(
        Unicode(),
        ["*"],
        help="Names (with * as a wildcard) of the environment variables that a request may set for its session. "
        "Under Kernel Gateway the default is KERNEL_* and the gateway's own env_whitelist.",
    ).tag(config=True)

    policies = Dict(
        help="Policies for scoped tokens, by name: each an object with fields of a policy, beside the built-in "
        "'default', 'trusted' and 'restricted', of which it may name one as its 'base'. A name may be that of a "
        "built-in one, which it replaces."
    ).tag(config=True)
    policy_file = Unicode(
        help="A TOML or JSON file with policies, by name, as in `policies`; those of `policies` take precedence."
    ).tag(config=True)
    offered_policies = List(
        Unicode(),
        ["*"],
        help="Names (with * as a wildcard) of the policies that scoped tokens can have, the built-in ones included. "
        "Tokens with another one are refused.",
    ).tag(config=True)
    allow_unprotected_tokens = Bool(
        False,
        help="Let scoped tokens run code in kernels without isolation. Such code has all rights of the "
        "server's user, whatever the token says: it can read the server's own token.",
    ).tag(config=True)
    default_isolation = Enum(
        ISOLATION_LEVELS,
        default_value="none",
        help="The least isolation of the kernels of every session, the owner's included. Where a kernelspec has less, "
        "its kernels are started with what there is on this machine ('sandbox', 'landlock'), or not at all.",
    ).tag(config=True)
    isolation_levels = Dict(
        default_value={PLAIN: "none", **{provisioner: level for level, provisioner in OUR_PROVISIONERS.items()}},
        value_trait=Unicode(),
        help="The isolation ('none', 'landlock', 'sandbox' or 'remote') of the kernels of each provisioner, by the "
        "name that a kernelspec gives it; 'none' for those not listed.",
    ).tag(config=True)
    default_token_seconds = Float(
        3600.0, help="How long a scoped token is good whose request does not say, in seconds."
    ).tag(config=True)
    max_token_seconds = Float(
        30 * 86_400.0, help="The longest that a scoped token may be good, in seconds; a longer one is refused."
    ).tag(config=True)
    max_tokens = Integer(
        1000,
        help="How many scoped tokens there may be at once; 0 for no limit. The last tenth is for the owner to create.",
    ).tag(config=True)

    session_directories = Bool(
        True,
        help="Give each session a working directory of its own, with files that can be listed, uploaded and "
        "downloaded. If it is off, kernels start in the server's own directory.",
    ).tag(config=True)
    work_root = Unicode(
        help="The directory that holds the sessions' directories. The default is jupyter_exec_ext/work in Jupyter's "
        "data directory."
    ).tag(config=True)
    max_file_bytes = Integer(4 * 1024**3, help="The largest file that may be uploaded, in bytes; 0 for no limit.").tag(
        config=True
    )
    max_session_bytes = Integer(
        8 * 1024**3,
        help="How much the files of a session may have together before an upload is refused, in bytes; 0 for no "
        "limit. Files that code writes are counted, not stopped.",
    ).tag(config=True)
    max_session_files = Integer(
        10_000, help="How many files a session may have before an upload is refused; 0 for no limit."
    ).tag(config=True)
    max_watched_entries = Integer(
        10_000,
        help="Executions report which files they created or changed, unless the session's directory has more entries "
        "than this; 0 to report none.",
    ).tag(config=True)

    network_hosts = Dict(
        help="Addresses of host names for the network rules of policies, as in /etc/hosts: a list for each name. They "
        "may be private."
    ).tag(config=True)
    network_upstream_proxy = Unicode(
        help="URL of the proxy through which this machine reaches the network, for sessions with network rules; it may "
        "have a user name and a password."
    ).tag(config=True)
    network_ca_file = Unicode(
        help="A file with certificate authorities that are trusted beside the system's where network rules have paths "
        "or there are secrets."
    ).tag(config=True)

    drain_seconds = Float(
        0.0,
        min=0.0,
        help="How long the server may drain after SIGTERM, in seconds: it takes no new sessions and ends as soon as "
        "nothing runs. A second SIGTERM ends it at once, and so does the first if this is 0.",
    ).tag(config=True)
    server_name = Unicode(
        help="A name for this server if it is one of several. Session and execution ids have it, so that a request for "
        "another server's session is recognised. It is made into at most 16 characters of a-z and 0-9. The default is "
        "the server's name at a JupyterHub (JUPYTERHUB_SERVER_NAME); empty for ids without a name."
    ).tag(config=True)

    ports_host = Unicode(
        help="Host names under which browsers see open ports of sessions: '*.ports.example.net', a wildcard under "
        "another domain than Jupyter's. All requests to them are the ports'. By default, there are names below "
        "localhost where the server is reached as localhost."
    ).tag(config=True)

    pool_size = Integer(
        1,
        min=0,
        help="How many kernels of each kind are kept ready for sessions to come, once there was a session with such a "
        "kernel; 0 for none at all. For a minute after requests that found none there are as many more, up to "
        "`pool_max`.",
    ).tag(config=True)
    pool_max = Integer(4, min=1, help="How many kernels of all kinds may be kept ready.").tag(config=True)
    pool_memory_bytes = Integer(
        512 * 1024**2, min=0, help="How much memory the kernels that are kept ready may have together, in bytes."
    ).tag(config=True)
    pool_idle_seconds = Float(
        600.0,
        min=0.0,
        help="How long kernels are kept ready of a kind that no session has asked for, in seconds.",
    ).tag(config=True)
    pool_kernels = List(
        Unicode(),
        help="Kernelspecs of which kernels are kept ready from the server's start and for good; NAME+LEVEL for kernels "
        "with that isolation ('python3+sandbox').",
    ).tag(config=True)

    @default("work_root")
    def _default_work_root(self) -> str:
        return os.path.join(jupyter_data_dir(), "jupyter_exec_ext", "work")

    @default("server_name")
    def _default_server_name(self) -> str:
        return server_slug(os.environ.get("JUPYTERHUB_SERVER_NAME", ""))

    @validate("server_name")
    def _slug(self, proposal: Bunch) -> str:
        return server_slug(proposal["value"])

    @validate("ports_host")
    def _wildcard(self, proposal: Bunch) -> str:
        name = str(proposal["value"]).lower().rstrip(".")
        if name and not _WILDCARD.fullmatch(name):
            raise TraitError(f"ports_host: write a wildcard such as '*.ports.example.net', not {name!r}")
        return name

    @validate("isolation_levels")
    def _known_levels(self, proposal: Bunch) -> dict[str, str]:
        for name, level in proposal["value"].items():
            if level not in ISOLATION_LEVELS:
                raise TraitError(f"isolation_levels: {name!r} must be one of {', '.join(ISOLATION_LEVELS)}")
        return dict(proposal["value"])

    def limits(self) -> dict[str, float]:
        """Return the limits that apply to every caller, by their traits' names."""
        names = (
            "default_timeout_seconds",
            "max_timeout_seconds",
            "max_sessions",
            "max_checkpoints",
            "max_queued_executions",
            "max_code_bytes",
            "max_output_bytes",
            "session_idle_timeout_seconds",
            "max_token_seconds",
            "max_file_bytes",
            "max_session_bytes",
            "max_session_files",
        )
        return {name: getattr(self, name) for name in names}

    def policies_or_problem(self) -> tuple[dict[str, Policy], str]:
        """Return the policies that tokens can have, and "" or a mistake in them. With a mistake there is no policy."""
        try:
            sets = self.named_rule_sets
            return configured_policies(self.policies, self.policy_file, self.offered_policies, sets), ""
        except PoliciesInvalid as error:
            place = f" (ExecEngine.policy_file is {self.policy_file})" if self.policy_file else ""
            self.log.error(
                "exec/v1 runs no code until the policies are corrected and the server is restarted: %s%s",
                error.message,
                place,
            )
            return {}, error.message
