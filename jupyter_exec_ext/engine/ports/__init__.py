"""Interfaces that the engine needs and others implement: kernels that it runs code on, files, and the store.

`assembly.py` chooses the implementations.
"""

from __future__ import annotations

from .access_store_ports import GrantStore, SecretStore, TokenStore
from .file_ports import NO_LIMITS, FileLimits, FileList, FileReader, FileWriter, KernelFiles, SessionFiles
from .kernel_ports import (
    CheckpointSupport,
    Kernel,
    KernelExit,
    KernelHost,
    KernelLaunch,
    KernelOwner,
    KernelReceiver,
    KernelTraits,
    NoObserver,
    ProcessOutput,
    RoomMaker,
)
from .network_ports import MakeProxy, NetworkProxy
from .store_ports import (
    AuditTrail,
    EventLog,
    ExecutionStore,
    LogEntry,
    OutputSpool,
    SessionStore,
    Store,
    WritableLog,
)

__all__ = [
    "NO_LIMITS",
    "AuditTrail",
    "CheckpointSupport",
    "EventLog",
    "ExecutionStore",
    "FileLimits",
    "FileList",
    "FileReader",
    "FileWriter",
    "GrantStore",
    "Kernel",
    "KernelExit",
    "KernelFiles",
    "KernelHost",
    "KernelLaunch",
    "KernelOwner",
    "KernelReceiver",
    "KernelTraits",
    "LogEntry",
    "MakeProxy",
    "NetworkProxy",
    "NoObserver",
    "OutputSpool",
    "ProcessOutput",
    "RoomMaker",
    "SecretStore",
    "SessionFiles",
    "SessionStore",
    "Store",
    "TokenStore",
    "WritableLog",
]
