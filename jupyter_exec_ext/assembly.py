"""Where the engine is put together: the one place that knows all of its parts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.multikernelmanager import MultiKernelManager
from jupyter_events import EventLogger

from .audit import metrics
from .audit.recorder import EventRecorder
from .engine.engine import ExecEngine
from .engine.hosted import HostedKernels
from .engine.isolation import sweep
from .marked_processes import kill_marked
from .store.store import ExecStore

T = TypeVar("T")

# What can be configured beside the hosts' own applications.
CONFIGURABLES = (ExecEngine, ExecStore)


def build_host(
    kernel_manager: MultiKernelManager,
    kernel_spec_manager: KernelSpecManager,
    *,
    max_kernels: int | None = None,
    forced_kernel_name: str = "",
) -> HostedKernels:
    """Return the kernels of a server or gateway as the engine sees them."""
    return HostedKernels(
        kernel_manager, kernel_spec_manager, max_kernels=max_kernels, forced_kernel_name=forced_kernel_name
    )


class OptionalSteps:
    """Runs steps of a start that a server can do without: one that fails is logged and reported, not raised.

    Attributes
    ----------
    problems : list of str
        What did not work, for `ExecEngine.trouble`.
    """

    def __init__(self, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self.problems: list[str] = []
        self._log = log

    def run(self, purpose: str, step: Callable[[], T]) -> T | None:
        """Return what `step` returns, None if it fails."""
        try:
            return step()
        except Exception as error:  # an earlier kernel may have left anything at all behind
            self._log.exception("could not %s", purpose)
            self.problems.append(f"at its start, the server could not {purpose} ({error}); its log says more")
            return None


def build_engine(host: HostedKernels, *, events: EventLogger | None = None, **options: Any) -> ExecEngine:
    """Return an engine on `host`, after what earlier servers left behind has been brought to its end.

    Parameters
    ----------
    events : EventLogger, optional
        Gets the records of the audit trail, and the metrics are fed, once ``engine.audit.start`` was called.
    **options
        ``parent``, ``config``, ``log`` for engine and store; traits of `ExecEngine`.
    """
    common = {name: options[name] for name in ("parent", "config", "log") if name in options}
    store = ExecStore(**common)
    if events is not None:
        store.audit.subscribe(metrics.count)
        store.audit.subscribe(EventRecorder(events).emit)
    steps = OptionalSteps(store.log)
    cut = steps.run("read which sessions earlier servers left open", store.left_behind) or []
    prepared = steps.run("read what earlier servers had prepared", store.left_prepared) or {}
    if cut or prepared:
        marks = {*(session.id for session in cut), *prepared}
        kernels = {session.kernel_id for session in cut if session.kernel_id and not session.attached}
        kernels.update(filter(None, prepared.values()))
        steps.run("end the processes of earlier kernels", partial(kill_marked, marks))
        steps.run("remove the connection files of earlier kernels", partial(host.forget_files, kernels))
    steps.run("clear away what earlier isolated kernels left", sweep)
    steps.run("end what earlier servers had left running", store.recover)
    engine = ExecEngine(host, store, **options)
    host.prefers_sockets = engine.kernel_transport == "ipc"
    steps.run("remove the directories of earlier sessions", partial(engine.clear_away, prepared))
    engine.start_problems = steps.problems
    engine.pool.on_event = metrics.count_pooled
    metrics.watch(engine)
    return engine
