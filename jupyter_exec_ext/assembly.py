"""Where the engine is put together: the one place that knows all of its parts."""

from __future__ import annotations

from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.multikernelmanager import MultiKernelManager
from jupyter_events import EventLogger

from .audit import metrics
from .audit.recorder import EventRecorder
from .engine.engine import ExecEngine
from .engine.hosted import HostedKernels
from .engine.isolation import sweep
from .engine.processes import kill_marked
from .store.store import ExecStore

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
    cut, prepared = store.left_behind(), store.left_prepared()
    if cut or prepared:
        kill_marked({*(session.id for session in cut), *prepared})
        kernels = {session.kernel_id for session in cut if session.kernel_id and not session.attached}
        host.forget_files(kernels.union(filter(None, prepared.values())))
    sweep()
    store.recover()
    engine = ExecEngine(host, store, **options)
    host.prefers_sockets = engine.kernel_transport == "ipc"
    engine.clear_away(prepared)
    engine.pool.on_event = metrics.count_pooled
    metrics.watch(engine)
    return engine
