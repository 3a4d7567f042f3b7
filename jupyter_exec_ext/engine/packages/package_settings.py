"""Package settings: traits of ``c.ExecEngine`` about sessions' packages, and the network rules that the index needs."""

from __future__ import annotations

import os

from jupyter_core.paths import jupyter_data_dir
from traitlets import Dict, Integer, Unicode, default
from traitlets.config import LoggingConfigurable

from .package_index import NamedSets, machine_index


class PackageSettings(LoggingConfigurable):
    """Traits of the engine for packages of sessions."""

    network_sets = Dict(
        help="Named sets of network rules, such as {'packages': ['index.example', 'files.example']}: a policy's "
        "`network` has one by its name with an @ before it ('@packages'). Without a set 'packages', '@packages' stands "
        "for the hosts of the index in pip's configuration on this machine."
    ).tag(config=True)
    package_wheelhouse = Unicode(
        help="A directory of wheels. With it, packages of sessions come from there alone, and need no network."
    ).tag(config=True)
    package_cache = Unicode(
        help="The directory in which the server keeps wheels that it has downloaded for sessions. The default is "
        "jupyter_exec_ext/wheels in Jupyter's data directory."
    ).tag(config=True)
    package_cache_bytes = Integer(
        4 * 1024**3,
        min=1,
        help="How much the wheels in `package_cache` may have together, and those of one installation, in bytes.",
    ).tag(config=True)

    @default("package_cache")
    def _default_package_cache(self) -> str:
        return os.path.join(jupyter_data_dir(), "jupyter_exec_ext", "wheels")

    @property
    def wheelhouse(self) -> str:
        """Absolute path of `package_wheelhouse`; empty without one."""
        return self.package_wheelhouse and os.path.abspath(os.path.expanduser(self.package_wheelhouse))

    @property
    def package_source(self) -> str:
        """Directory or index of packages, for people; the first question for the index blocks for some 300 ms."""
        return self.wheelhouse or machine_index().url or "pip's default index"

    @property
    def named_rule_sets(self) -> NamedSets:
        """Named sets of network rules, with that of packages."""
        return NamedSets(self.network_sets)
