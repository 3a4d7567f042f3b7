"""Assembly of the engine: chooses its host and store, and cleans up after earlier servers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.multikernelmanager import MultiKernelManager
from jupyter_events import EventLogger

from .audit import metrics_and_events as metrics
from .audit.metrics_and_events import EventRecorder
from .engine.engine import ExecEngine
from .engine.kernels.kernel_host import KEPT_DESCRIPTORS, ManagerKernelHost
from .engine.kernels.process_limits import (
    descriptor_limit,
    fitting_sessions,
    keeping_descriptor_limit,
    opened_descriptors,
    raise_descriptor_limit,
)
from .engine.kernels.provisioners import sweep
from .isolation.network.proxy_supervisor import ProxySupervisor
from .store.store import ExecStore
from .system.marked_processes import kill_marked
from .system.protected_paths import protect_path

T = TypeVar("T")

# Configurable classes, beside the hosts' own applications.
CONFIGURABLES = (ExecEngine, ExecStore)


def build_host(
    kernel_manager: MultiKernelManager,
    kernel_spec_manager: KernelSpecManager,
    *,
    max_kernels: int | None = None,
    forced_kernel_name: str = "",
    server_sessions: Any = None,
) -> ManagerKernelHost:
    """Return the kernel host of a server or gateway, and raise the process's limit on descriptors."""
    kernel_manager.kernel_manager_factory = keeping_descriptor_limit(
        kernel_manager.kernel_manager_factory, raise_descriptor_limit()
    )
    return ManagerKernelHost(
        kernel_manager,
        kernel_spec_manager,
        max_kernels=max_kernels,
        forced_kernel_name=forced_kernel_name,
        server_sessions=server_sessions,
    )


class OptionalSteps:
    """Runner of optional start steps: a step that fails is logged and reported, not raised.

    Attributes
    ----------
    problems : list of str
        Steps that failed, for `ExecEngine.trouble`.
    """

    def __init__(self, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self.problems: list[str] = []
        self._log = log

    def run(self, purpose: str, step: Callable[[], T]) -> T | None:
        """Return the result of `step`, None if it fails."""
        try:
            return step()
        except Exception as error:  # an earlier kernel may have left anything behind
            self._log.exception("could not %s", purpose)
            self.problems.append(f"at its start, the server could not {purpose} ({error}); its log says more")
            return None


def build_engine(host: ManagerKernelHost, *, events: EventLogger | None = None, **options: Any) -> ExecEngine:
    """Return an engine on `host`, after ending kernels and executions of earlier servers.

    Parameters
    ----------
    events : EventLogger, optional
        Gets the records of the audit trail, as do the metrics, after ``engine.audit.start``.
    **options
        ``parent``, ``config``, ``log`` for engine and store; traits of `ExecEngine`.
    """
    common = {name: options[name] for name in ("parent", "config", "log") if name in options}
    store = ExecStore(**common)
    protect_path(store.directory)
    if events is not None:
        store.audit.subscribe(metrics.count)
        store.audit.subscribe(EventRecorder(events).emit)
    steps = OptionalSteps(store.log)
    # Read before `recover`, which ends these sessions in the store.
    cut = steps.run("read which sessions earlier servers left open", store.left_behind) or []
    prepared = steps.run("read what earlier servers had prepared", store.left_prepared) or {}
    if cut or prepared:
        marks = {*(session.id for session in cut), *prepared}
        # Attached kernels belong to notebooks, which may still use them.
        kernels = {session.kernel_id for session in cut if session.kernel_id and not session.attached}
        kernels.update(filter(None, prepared.values()))
        steps.run("end the processes of earlier kernels", partial(kill_marked, marks))
        steps.run("remove the connection files of earlier kernels", partial(host.forget_files, kernels))
    steps.run("clear away what earlier isolated kernels left", sweep)
    steps.run("end what earlier servers had left running", store.recover)
    engine = ExecEngine(host, store, make_proxy=ProxySupervisor, **options)
    if engine.policy_file:
        protect_path(engine.policy_file)
    _lower_max_sessions(engine)
    host.prefers_sockets = engine.kernel_transport == "ipc"
    ended = {*prepared, *(session.id for session in cut if not session.attached)}
    steps.run("remove the directories of earlier sessions", partial(engine.remove_unused_files, ended))
    engine.start_problems = steps.problems
    engine.pool.on_event = metrics.count_pooled
    metrics.watch(engine.status)
    return engine


def _lower_max_sessions(engine: ExecEngine) -> None:
    """Lower `max_sessions` to the number that the process's descriptors suffice for."""
    limit, opened = descriptor_limit(), opened_descriptors()
    if limit is None or opened is None:
        return
    fitting = fitting_sessions(limit, opened, KEPT_DESCRIPTORS, engine.pool_max if engine.pool_size else 0)
    if not 0 < engine.max_sessions <= fitting:
        engine.log.warning(
            "max_sessions is lowered from %s to %d: the server can open %d descriptors. Raise the hard limit (ulimit "
            "-Hn, LimitNOFILE= of systemd, --ulimit nofile= of Docker) for more.",
            engine.max_sessions or "no limit",
            fitting,
            limit,
        )
        engine.max_sessions = fitting
