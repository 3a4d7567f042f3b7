"""Warm pool plan: how many kernels of each kind to keep ready, decided from past demand without I/O.

It also has the kinds of kernels, and the pooled kernel itself.

A kind of kernel is kept once it has been asked for, until it has not been for a while. One kernel of each is enough for
occasional requests. A request that finds none makes the pool hold one more for a minute, so that it
grows with a burst and shrinks after it. The number of kernels and their memory are bounded, the bounds are shared out
to the kinds that were asked for last, and every kind gets its first ones before any gets more.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ...errors import KernelStartFailed, KernelStartTimeout
from ...protocol.kernel_messages import KernelMessage
from ...protocol.record_ids import new_id
from ..ports import KernelExit
from .process_limits import NO_PROCESS_LIMITS, ProcessLimits
from .session_kernel import SessionKernel

#: What a kernel is taken to have until one of its kind was measured.
ASSUMED_BYTES = 64 * 1024**2
#: How long one more kernel is kept after a request that found none.
MISS_SECONDS = 60.0
# A kind of which this many were lost since the last request is not started again before the next request.
_MAX_LOST = 3

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class KernelKind:
    """Kind of kernel: everything that a start depends on. Before they run code, kernels of one kind are alike.

    Parameters
    ----------
    version : str
        Digest of the kernelspec.
    env : frozenset
        The complete environment, without the session's mark.
    of_policies : frozenset
        Part of it that policies give, such as network rules: kinds that differ in it are in use side by side.
    """

    name: str
    language: str
    version: str
    isolate: str | None
    # It may have secrets, and must not get into a log by way of `repr`.
    env: frozenset[tuple[str, str]] = field(repr=False)
    limits: ProcessLimits = NO_PROCESS_LIMITS
    of_policies: frozenset[tuple[str, str]] = frozenset()
    # Names; their placeholders differ by session, and are no part of the kind.
    secrets: tuple[str, ...] = ()

    def is_newer_than(self, other: KernelKind) -> bool:
        """Return whether no request can be for the other kind: the kernelspec, or the environment, has changed."""
        mine = self.name, self.isolate, self.limits, self.of_policies, self.secrets
        return mine == (other.name, other.isolate, other.limits, other.of_policies, other.secrets) and self != other


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """Bounds of a pool; see the traits ``pool_…``.

    Parameters
    ----------
    size : int
        How many of each kind.
    max_kernels, memory_bytes : int
        How much of all kinds together.
    idle_seconds : float
        How long a kind is kept without a request.
    """

    size: int
    max_kernels: int
    memory_bytes: int
    idle_seconds: float


@dataclass(slots=True)
class Demand:
    """Demand for a kind of kernel.

    Parameters
    ----------
    asked_at : float
        When, the last time.
    missed_at : list of float
        When there was none, the last times.
    kernel_bytes : int
        The most that one of them had; 0 if none was measured.
    lost : int
        How many have come to nothing since.
    always : bool
        Whether it is kept without requests.
    """

    asked_at: float
    missed_at: list[float] = field(default_factory=list)
    kernel_bytes: int = 0
    lost: int = 0
    always: bool = False

    def ask(self, now: float, *, found: bool, most: int) -> None:
        """Note a request; at most `most` that found none count."""
        self.asked_at, self.lost = now, 0
        if not found:
            self.missed_at = [*self.missed_at, now][-most:]

    def count_wanted(self, now: float, bounds: PoolBounds) -> int:
        """Return how many are worth having, if nothing else is."""
        if self.is_forgotten(now, bounds) or self.lost >= _MAX_LOST:
            return 0
        return bounds.size + sum(now - at < MISS_SECONDS for at in self.missed_at)

    def is_forgotten(self, now: float, bounds: PoolBounds) -> bool:
        """Return whether the last request is so long ago that the kind is not kept any more."""
        return not self.always and now - self.asked_at >= bounds.idle_seconds


@dataclass(frozen=True, slots=True)
class Plan(Generic[K]):
    """Next step of a pool.

    Parameters
    ----------
    start : K or None
        The kind to start one of.
    end : tuple of K
        The kinds to end one of, as often as they are named.
    look_again_at : float or None
        When time alone changes that.
    """

    start: K | None
    end: tuple[K, ...]
    look_again_at: float | None


def plan(now: float, bounds: PoolBounds, demands: Mapping[K, Demand], held: Sequence[K]) -> Plan[K]:
    """Return what takes a pool to what it should hold.

    Parameters
    ----------
    held : sequence of K
        The kinds of the kernels that it holds.
    """
    shares, ready = allot(now, bounds, demands), Counter(held)
    end = tuple(kind for kind, number in ready.items() for _ in range(number - shares.get(kind, 0)))
    start = next((kind for kind, share in shares.items() if ready[kind] < share), None)
    return Plan(start, end, _next_change(now, bounds, demands))


def allot(now: float, bounds: PoolBounds, demands: Mapping[K, Demand]) -> dict[K, int]:
    """Return how many kernels of each kind there should be, the most urgent kind first."""
    order = sorted(demands, key=lambda kind: demands[kind].asked_at, reverse=True)
    wanted = {kind: demands[kind].count_wanted(now, bounds) for kind in order}
    shares = dict.fromkeys(order, 0)
    number = used_bytes = 0
    for most in (bounds.size, max(wanted.values(), default=0)):
        for kind in order:
            while shares[kind] < min(most, wanted[kind]):
                used_bytes += demands[kind].kernel_bytes or ASSUMED_BYTES
                number += 1
                if number > bounds.max_kernels or used_bytes > bounds.memory_bytes:
                    # Not even a smaller kind gets the rest: the room is for the more urgent kind.
                    return shares
                shares[kind] += 1
    return shares


def _next_change(now: float, bounds: PoolBounds, demands: Mapping[K, Demand]) -> float | None:
    moments = [at + MISS_SECONDS for demand in demands.values() for at in demand.missed_at]
    moments += [demand.asked_at + bounds.idle_seconds for demand in demands.values() if not demand.always]
    return min((moment for moment in moments if moment > now), default=None)


class SpoiledKernels(Protocol):
    """Pool that ends kernels which no session may have."""

    def note_spoiled(self, pooled: PooledKernel, reason: str) -> None:
        """End a kernel."""


class PooledKernel:
    """A kernel that no session has yet.

    Attributes
    ----------
    ready : bool
        Whether a session may have it.
    """

    def __init__(self, kind: KernelKind, pool: SpoiledKernels, server_name: str) -> None:
        self.kind = kind
        # Both are written down before there is anything that goes by them.
        self.session_id, self.kernel_id = new_id("ses", server_name), str(uuid.uuid4())
        self.ready = False
        self.kernel: SessionKernel | None = None
        self._pool: SpoiledKernels | None = pool
        self._seen: set[tuple[str, str]] = set()
        self._is_settled = asyncio.Event()

    def on_message(self, message: KernelMessage) -> None:
        """Note which set-up requests are done; any other request spoils the kernel."""
        assert self.kernel is not None
        parent = message.parent_id
        if not parent:  # no answer to a request, such as output at its start
            return
        if parent not in self.kernel.setups:
            self.discard("another client has used it")
            return
        # Reply and status come on two channels, in any order. Before both, the kernel may still publish.
        if message.msg_type == "execute_reply":
            self._seen.add((parent, "reply"))
        elif message.msg_type == "status" and message.content.get("execution_state") == "idle":
            self._seen.add((parent, "idle"))
        self._note_progress()

    def _note_progress(self) -> None:
        assert self.kernel is not None
        if self._seen.issuperset((parent, what) for parent in self.kernel.setups for what in ("reply", "idle")):
            self._is_settled.set()

    async def set_up(self, timeout_seconds: float) -> None:
        """Wait until the kernel has run what is ours to the end.

        Raises
        ------
        KernelStartTimeout
        KernelStartFailed
            If it is the pool's no more.
        """
        self._note_progress()
        try:
            await asyncio.wait_for(self._is_settled.wait(), timeout_seconds)
        except asyncio.TimeoutError:
            raise KernelStartTimeout("the kernel does not come to the end of its set-up") from None
        if self._pool is None:
            raise KernelStartFailed("the kernel was thrown away during its set-up")

    def on_too_large(self, reason: str) -> None:
        """Spoil the kernel."""
        self.discard(reason)

    def on_exit(self, exit_: KernelExit) -> None:
        """Spoil the kernel."""
        self.discard(f"it {exit_}")

    async def on_connected(self, kernel_id: str, starts: int) -> None:
        """Do nothing: there is no record of a session yet."""

    async def on_removed(self, reason: str) -> None:
        """Spoil the kernel."""
        self.discard(reason)

    def discard(self, reason: str) -> None:
        """Say that no session may have it."""
        if self._pool is not None:
            self._pool.note_spoiled(self, reason)

    def detach(self) -> None:
        """Be the pool's no more."""
        self.ready = False
        self._pool = None
        self._is_settled.set()  # ends the wait of `set_up`, which finds no pool then
