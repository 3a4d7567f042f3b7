"""What the engine needs from outside, as protocols: kernels to run on, and a place to keep records.

`assembly.py` chooses the implementations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from ..models import (
    Execution,
    FileInfo,
    FilesEvent,
    IdempotencyKey,
    KernelSpecInfo,
    OutputEvent,
    Session,
    SpooledOutput,
    StoredExecution,
    StoredToken,
    Token,
)
from ..wire.overflow import Spool, SpooledFile
from .quotas import NO_LIMITS, FileLimits


@dataclass(frozen=True, slots=True)
class KernelExit:
    """How a kernel process ended, as far as the system tells.

    Parameters
    ----------
    exit_code : int or None
        Its exit code, if it exited.
    signal : str or None
        The signal's name, such as ``"SIGKILL"``, if one ended it.
    """

    exit_code: int | None = None
    signal: str | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"was ended by {self.signal}"
        return "ended" if self.exit_code is None else f"exited with code {self.exit_code}"


class Kernel(Protocol):
    """One kernel, from its start to its shutdown; restarts keep the id.

    Attributes
    ----------
    ours : bool
        Whether it was started for the session. If not, it is somebody else's, who goes on using it: it is neither
        killed nor shut down, restarting it is to wait until the host has done so, and `turn` is held by the session
        that sends it code.
    """

    @property
    def ours(self) -> bool:
        """Whether it was started for the session."""

    @property
    def turn(self) -> asyncio.Lock:
        """Whose turn it is among the sessions that use the kernel."""

    @property
    def kernel_id(self) -> str:
        """The host's id of the kernel."""

    @property
    def present(self) -> bool:
        """Whether the host still has the kernel, alive or dead."""

    @property
    def pid(self) -> int | None:
        """Its process, if it is one of this machine."""

    @property
    def being_shut_down(self) -> bool:
        """Whether the host is ending its process on purpose."""

    async def alive(self) -> bool:
        """Return whether the kernel's process runs."""

    def connection_info(self) -> Mapping[str, Any]:
        """Return the addresses and the key, as in a connection file."""

    def watch_exit(self, on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
        """Call `on_exit` once when the present process ends; the returned function ends the watch."""

    async def interrupt(self) -> None:
        """Ask the running code to stop, in the kernelspec's way."""

    async def kill(self) -> None:
        """End the process at once and wait until it has ended; the host keeps the kernel."""

    async def restart(self, *, now: bool) -> None:
        """Start a fresh process under the same id; with `now`, without asking the old one to exit."""

    async def shutdown(self, *, now: bool) -> None:
        """End the process and make the host forget the kernel."""

    def touch(self) -> None:
        """Tell the host that the kernel is in use, so that it is not culled."""

    def take_over_watch(self) -> None:
        """Make the host read the kernel's output no more: from now on it is told what it needs to know."""

    def note_state(self, state: str) -> None:
        """Tell the host that the kernel has become busy or idle, whoever's code it was."""

    async def settled(self) -> None:
        """Wait until a shutdown or restart that somebody else began is over."""


class KernelHost(Protocol):
    """A multi-kernel manager: the server's, the gateway's or our own."""

    @property
    def default_kernel_name(self) -> str:
        """The kernelspec used when a caller names none."""

    async def kernelspecs(self) -> Sequence[KernelSpecInfo]:
        """Return the kernelspecs a caller may name."""

    async def find(self, kernel_name: str) -> KernelSpecInfo:
        """Return one kernelspec.

        Raises
        ------
        KernelSpecNotFound
        """

    def reserve(self, kernel_id: str) -> AbstractContextManager[None]:
        """Hold a place among the host's kernels while one starts.

        Raises
        ------
        TooManyKernels
            If the host's limit is reached, counting kernels that are still starting.
        """

    async def start(self, kernel_name: str, env: Mapping[str, str], cwd: str | None) -> Kernel:
        """Start a kernel with exactly the environment `env`, in the directory `cwd` or, without one, in the host's.

        Raises
        ------
        TooManyKernels, KernelStartFailed
        """

    def running(self, kernel_id: str) -> KernelSpecInfo:
        """Return the kernelspec of a kernel that can be attached to.

        Raises
        ------
        KernelNotFound
            If the host has no such kernel, or it was started for a session.
        """

    async def attach(self, kernel_id: str) -> Kernel:
        """Return a running kernel, to be used together with whoever uses it already.

        Raises
        ------
        KernelNotFound
        Conflict
            If its process does not run at the moment.
        """


class LogEntry(Protocol):
    """One stored event: numbered, and ready to be sent."""

    @property
    def seq(self) -> int:
        """Its number, from 1 without gaps."""

    @property
    def type(self) -> str:
        """The event's type."""

    @property
    def large(self) -> bool:
        """Whether `text` takes so long that it is to be called in a worker thread."""

    def text(self) -> str:
        """Return the event as one line of JSON."""


class EventLog(Protocol):
    """The numbered events of one execution, for any number of readers.

    A reader that is slow or gone costs the writer nothing: it reads from the log at its own pace.
    """

    @property
    def last_seq(self) -> int:
        """The number of the last event; 0 for an empty log."""

    @property
    def closed(self) -> bool:
        """Whether the last event is in."""

    async def read(self, after: int, limit: int) -> Sequence[LogEntry]:
        """Return up to `limit` entries that follow number `after`."""

    async def changed(self, after: int) -> None:
        """Return once there is something after number `after`, or the log is closed."""


class WritableLog(EventLog, Protocol):
    """A log that is still written."""

    def append(self, event: OutputEvent) -> None:
        """Number the event and store it."""


class OutputSpool(Spool, Protocol):
    """Where what an execution's output cap leaves out is written; no trouble with it is ever raised."""

    @property
    def problem(self) -> str | None:
        """Why some of it could not be written."""

    async def close(self) -> Mapping[str, SpooledFile]:
        """Write what is left and return what there is."""


class SessionStore(Protocol):
    """Keeps session records, those of ended sessions included."""

    async def add(self, session: Session) -> None:
        """Insert a record.

        Raises
        ------
        StorageFull, StoreUnavailable
        """

    async def save(self, session: Session) -> None:
        """Replace a record, now or as soon as the storage lets us."""

    async def get(self, session_id: str) -> Session | None:
        """Return a record."""

    async def list_ended(self, limit: int) -> Sequence[Session]:
        """Return the newest records of ended sessions, oldest first."""


class ExecutionStore(Protocol):
    """Keeps execution records and their event logs."""

    async def accept(
        self, execution: Execution, owner: str, key: IdempotencyKey | None, sender: str | None = None
    ) -> WritableLog | StoredExecution:
        """Record an execution before its code is sent and return its log, or the one that came with the same key.

        `sender` is who asked for it, if not its owner. The record survives the death of this process.

        Raises
        ------
        IdempotencyKeyReused, StorageFull, StoreUnavailable
        """

    async def find(self, session_id: str, owner: str, key: IdempotencyKey) -> StoredExecution | None:
        """Return the execution that was accepted with `key`, if there is one.

        Raises
        ------
        IdempotencyKeyReused
        """

    async def sync(self) -> None:
        """Return once what was accepted would survive a power failure too."""

    def spool(self, execution: Execution) -> OutputSpool | None:
        """Return where what the execution's output cap leaves out is written; None if nothing of it is kept."""

    def when_few_wait(self, callback: Callable[[], None]) -> None:
        """Call `callback` now or, if much waits to be spooled, when there is less."""

    async def amend(self, execution: Execution) -> None:
        """Replace the record of an accepted execution that has not ended, such as after a person edited its code.

        Raises
        ------
        StorageFull, StoreUnavailable
        """

    async def finish(self, execution: Execution, owner: str, log: Any) -> None:
        """Write the end event and the terminal row; then let readers see both.

        Parameters
        ----------
        log : WritableLog
            As `accept` returned it.
        """

    async def get(self, execution_id: str) -> StoredExecution | None:
        """Return a record; of a finished execution with its outputs."""

    async def summary(self, execution_id: str) -> StoredExecution | None:
        """Return a record without its outputs."""

    async def open_spooled(self, execution: Execution, output: SpooledOutput) -> int | None:
        """Return a descriptor of a file of a finished execution's spool, None if it is no longer kept."""

    async def log(self, execution_id: str) -> EventLog | None:
        """Return the log of a finished execution, None once it is no longer kept."""

    async def list(self, session_id: str, limit: int) -> Sequence[Execution]:
        """Return the session's newest records, oldest first, without their outputs."""


class TokenStore(Protocol):
    """Keeps scoped tokens; of their secrets, only hashes."""

    def find(self, token_id: str, secret_hash: bytes) -> StoredToken | None:
        """Return the token with this id, ended or not, if the secret is right; at once, from the event loop.

        Raises
        ------
        StoreUnavailable
        """

    def ended(self, token_ids: Collection[str]) -> Mapping[str, Token | None]:
        """Return which of these tokens let nobody in any more; at once, from the event loop.

        None stands for what is not known, or not any more: a database that was damaged is not used any more.

        Raises
        ------
        StoreUnavailable
        """

    async def note_expired(self, token_id: str) -> bool:
        """Remember for good that a token was seen expired; return whether that is news."""

    async def note_use(self, token_id: str) -> None:
        """Remember that a token was used now."""

    async def add(self, stored: StoredToken, secret_hash: bytes, max_tokens: int) -> None:
        """Insert a token, if there are not `max_tokens` active ones; 0 for no limit.

        Raises
        ------
        TokenRevoked
            If the token above it has ended meanwhile.
        TooManyTokens, StorageFull, StoreUnavailable
        """

    async def list(self, root: str | None, *, ended: bool) -> Sequence[Token]:
        """Return tokens, oldest first: all, or those whose principal is `root` or below it."""

    async def get(self, token_id: str) -> StoredToken | None:
        """Return a token, ended or not."""

    async def rotate(self, token_id: str, secret_hash: bytes, overlap_seconds: float) -> None:
        """Give a token another secret; the one before it is good for a while longer."""

    async def revoke(self, principal: str) -> Sequence[str]:
        """Revoke a token and all that were created below it; return the ids of those that were not revoked before."""


class AuditTrail(Protocol):
    """Who did what; sessions and executions are in it by themselves, when they begin and end."""

    def record(self, kind: str, action: str, principal: str, subject: str, **data: Any) -> None:
        """Record something soon, from the loop's thread. Never raises for the storage's sake.

        Parameters
        ----------
        kind : str
            One of `AuditKind`.
        principal : str
            Whose doing it was; empty for a stranger.
        subject : str
            The id or path that it was done to.
        **data
            As the kind's schema has it; never a secret.
        """

    def start(self) -> None:
        """Begin to give records to whoever subscribed, in the running loop; until then they are held back."""


class Store(Protocol):
    """Where records are kept."""

    @property
    def tokens(self) -> TokenStore:
        """Scoped tokens."""

    @property
    def audit(self) -> AuditTrail:
        """The audit trail."""

    @property
    def sessions(self) -> SessionStore:
        """Those of sessions."""

    @property
    def executions(self) -> ExecutionStore:
        """Those of executions."""

    def on_forget(self, callback: Callable[[Sequence[str]], None]) -> None:
        """Call `callback`, in any thread, with the ids of sessions of which nothing is kept any more."""

    def trouble(self) -> str | None:
        """Return what is wrong with the store, if anything is."""

    def close(self) -> None:
        """Write what is left, and close every file."""


class FileReader(Protocol):
    """An open file; whoever has it closes it."""

    @property
    def info(self) -> FileInfo:
        """What the file was when it was opened."""

    def blocks(self) -> AsyncIterator[bytes]:
        """Yield exactly the bytes that `info` tells of.

        Raises
        ------
        Conflict
            If the file became shorter meanwhile.
        """

    async def close(self) -> None:
        """Be done with it."""


class FileWriter(Protocol):
    """A file that is being written: it is there as a whole, or not at all."""

    async def write(self, data: bytes) -> None:
        """Take in the next bytes.

        Raises
        ------
        QuotaExceeded, StorageFull
        """

    async def commit(self) -> tuple[FileInfo, bool]:
        """Put the file in its place; return what it is now, and whether there was none before.

        Raises
        ------
        NotAFile, StorageFull
        """

    async def discard(self) -> None:
        """Leave no trace of it; after `commit` this does nothing."""


@dataclass(frozen=True, slots=True)
class FileList:
    """Files, by path; `truncated` if there are more than are listed."""

    files: Sequence[FileInfo]
    truncated: bool = False


class SessionFiles(Protocol):
    """The sessions' working directories, wherever the kernels are.

    Every method may raise `FilesNotAvailable`, `InvalidRequest` for a path that is none, and `NotAFile` or
    `FileNotFound` for what is not there.
    """

    async def prepare(self, session_id: str) -> str | None:
        """Make sure of the session's working directory before a kernel starts.

        Returns the directory the kernel starts in; None for the host's own. Called again before each restart, since
        the code may have removed it.
        """

    async def list_files(self, session_id: str, path: str = "") -> FileList:
        """Return the files below a directory."""

    async def open(self, session_id: str, path: str) -> FileReader:
        """Open a file for reading."""

    async def digest(self, session_id: str, path: str) -> str:
        """Return the SHA-256 of a file, in hexadecimal."""

    async def create(
        self, session_id: str, path: str, size_bytes: int | None, limits: FileLimits = NO_LIMITS
    ) -> FileWriter:
        """Begin to write a file, of which the size may be known, within `limits` and the server's own.

        Raises
        ------
        QuotaExceeded, StorageFull
        """

    async def delete(self, session_id: str, path: str) -> None:
        """Delete a file."""

    async def changes(self, session_id: str) -> FilesEvent | None:
        """Return what code has created or changed since the last call; never raises."""

    async def session_ended(self, session_id: str) -> None:
        """Take note that no code runs in the session any more; its files stay."""

    async def remove(self, session_id: str) -> None:
        """Remove all of a session's files."""

    def close(self) -> None:
        """Let go of threads."""
