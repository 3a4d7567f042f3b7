"""Settings of a pool of servers: the traits of ``c.ExecPool``."""

from __future__ import annotations

from pathlib import Path

from jupyter_core.paths import jupyter_data_dir
from traitlets import Dict, Enum, Float, Integer, TraitError, Unicode, default, validate
from traitlets.config import LoggingConfigurable
from traitlets.utils.bunch import Bunch

from .placement import ServerBounds


class ExecPool(LoggingConfigurable):
    """A pool of servers at a JupyterHub: ``jupyter exec pool``."""

    ip = Unicode("127.0.0.1", help="The address that the pool listens on.").tag(config=True)
    port = Integer(8801, min=0, max=65535, help="The port that the pool listens on; 0 for a free one.").tag(config=True)
    state_directory = Unicode(
        help="Directory of the pool's own records: the ids of the executions that it has accepted, for a week."
    ).tag(config=True)
    hub_user = Unicode(
        "exec-pool", help="The JupyterHub user whose named servers are the pool. Keep this user for the pool alone."
    ).tag(config=True)
    server_options = Dict(
        help="Options of the pool's servers for the Hub's spawner, as a user would choose them before a start."
    ).tag(config=True)
    min_servers = Integer(1, min=0, help="How many servers run at least.").tag(config=True)
    max_servers = Integer(
        4, min=1, help="How many servers run at most, with those that are starting or being drained."
    ).tag(config=True)
    sessions_per_server = Integer(
        100,
        min=1,
        help="How many sessions the pool places on one server. The server's own `ExecEngine.max_sessions` should be "
        "as high.",
    ).tag(config=True)
    spare_sessions = Integer(
        10, min=0, help="For how many more sessions there is room in advance. Below that, the pool starts a server."
    ).tag(config=True)
    idle_server_seconds = Float(
        600.0, min=0.0, help="A server that the pool does not need stops after it had no session for this long."
    ).tag(config=True)
    max_sessions_per_principal = Integer(
        0,
        min=0,
        help="How many sessions each user or service may have at once in the whole pool; 0 for no limit.",
    ).tag(config=True)
    policies = Dict(
        value_trait=Unicode(),
        default_value={"custom:exec:run": "default"},
        help="The policy of Hub tokens, by the scope that they have. If a token has several of these scopes, the "
        "first of them decides. Tokens without any of them are refused.",
    ).tag(config=True)
    tenancy = Enum(
        ("isolated", "own"),
        "isolated",
        help="'isolated': principals share servers, whose kernels must be isolated from each other; the pool does not "
        "start otherwise. 'own': each principal has a server of its own.",
    ).tag(config=True)
    lost_after_seconds = Float(
        30.0,
        min=0.0,
        help="A server that does not answer for this long is lost: its executions end as 'server_lost', and the pool "
        "stops it.",
    ).tag(config=True)
    hub_stale_seconds = Float(
        300.0,
        min=0.0,
        help="How long a known token stays good while the Hub cannot be reached, in seconds.",
    ).tag(config=True)

    @property
    def server_bounds(self) -> ServerBounds:
        """The bounds on the number of servers."""
        is_shared = self.tenancy == "isolated"  # otherwise servers start for their principals alone
        return ServerBounds(
            self.min_servers if is_shared else 0,
            self.max_servers,
            self.sessions_per_server,
            self.spare_sessions if is_shared else 0,
            self.idle_server_seconds,
        )

    @default("state_directory")
    def _default_state_directory(self) -> str:
        return str(Path(jupyter_data_dir()) / "exec_pool")

    @validate("min_servers", "max_servers")
    def _check_servers(self, proposal: Bunch) -> int:
        if self.min_servers > self.max_servers:
            raise TraitError(
                f"ExecPool.max_servers is {self.max_servers}, less than ExecPool.min_servers ({self.min_servers})"
            )
        return int(proposal.value)
