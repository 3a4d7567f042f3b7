"""`Bench`: the contenders' processes, the servers, and the numbers of rounds that each module of `rows` is given."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .contender_table import Contender
from .interleave import interleaved
from .peers import ROOT, PeerError, Worker, environment
from .processes import settle
from .results import Results
from .servers import Place, Server, running

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
Check = Callable[[Any], bool]


def prints(expected: str) -> Check:
    """Return what accepts a text that is just this, but for space around it."""
    return lambda value: bool(value["length"] < 200 and value["head"].strip() == expected)


class WrongAnswerError(Exception):
    """A contender gave another result than the code has: its time means nothing."""


@dataclass
class Bench:
    """One run.

    Parameters
    ----------
    results : Results
        Where everything goes.
    rounds : int
        The rounds of a row that is neither quick nor slow; the others take multiples and parts of it.
    quick : bool
        Whether everything is to be done a little only, to see that it works.
    without : collection of str
        Environments whose contenders are left out.
    server_options : sequence of str
        For our servers.
    """

    results: Results
    rounds: int
    quick: bool = False
    without: frozenset[str] = frozenset()
    server_options: Sequence[str] = ()
    _workers: dict[str, Worker] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stack.__exit__(exc_type, exc, tb)

    def say(self, text: str) -> None:
        """Tell whoever waits how far it is."""
        print(text, file=sys.stderr, flush=True)

    def times(self, factor: float, least: int = 3) -> int:
        """Return how many rounds a row gets that takes so many times the usual number."""
        return 2 if self.quick else max(least, round(self.rounds * factor))

    def scaled(self, full: int, quick: int) -> int:
        """Return a size: the full one, or the one to see that it works."""
        return quick if self.quick else full

    def available(self, contenders: Iterable[Contender]) -> list[Contender]:
        """Return those that can be here, and note of the others why not."""
        found = []
        for contender in contenders:
            if reason := self._missing(contender):
                if contender.label not in self.results.left_out:
                    self.say(f"  left out: {contender.label}: {reason}")
                self.results.left_out[contender.label] = reason
            else:
                found.append(contender)
        return found

    def _missing(self, contender: Contender) -> str | None:
        if unwanted := contender.environments & self.without:
            return f"left out on request (--without {' '.join(sorted(unwanted))})"
        try:
            for name in sorted(contender.environments):
                environment(name)
        except PeerError as error:
            return _without_places(str(error))
        return contender.place.missing() if contender.place else None

    def worker(self, contender: Contender) -> Worker:
        """Return the process that has a contender; it stays for the whole run."""
        if contender.worker not in self._workers:
            python = environment(contender.environment) if contender.environment else Path(sys.executable)
            worker = Worker(python, "-m", f"benchmarks.contenders.{contender.worker}")
            self._workers[contender.worker] = self._stack.enter_context(worker)
        return self._workers[contender.worker]

    @contextmanager
    def servers(self, contenders: Iterable[Contender]) -> Iterator[dict[Place, Server]]:
        """Run the servers that contenders are on, each once."""
        places = dict.fromkeys(contender.place for contender in contenders if contender.place)
        with ExitStack() as stack:
            yield {place: stack.enter_context(running(place, self.server_options)) for place in places}

    @contextmanager
    def made(self, contenders: Iterable[Contender], **more: object) -> Iterator[list[Handle]]:
        """Run the servers of contenders and make these; at the end, end all."""
        with self.servers(contenders) as servers, ExitStack() as stack:
            handles = [Handle(self, contender, servers) for contender in contenders]
            for handle in handles:
                handle.make(**more)
                stack.callback(handle.close)
            yield handles

    def interleave(
        self,
        handles: Iterable[Handle],
        sample: Callable[[Handle], T],
        rounds: int,
        warm_up: int = 1,
        *,
        rest: bool = False,
    ) -> dict[str, list[T]]:
        """Take a sample of each contender in turns; see `interleaved`.

        What one of ours does wrong ends the run. What a peer does wrong is noted, and no sample.

        Parameters
        ----------
        rest : bool
            Whether to wait before each until nothing goes on any more.
        """
        turns = {handle.contender.label: partial(self._attempt, sample, handle) for handle in handles}
        found = interleaved(turns, rounds, min(warm_up, 1) if self.quick else warm_up, settle if rest else _go_on)
        return {label: [one for one in samples if one is not None] for label, samples in found.items()}

    def _attempt(self, sample: Callable[[Handle], T], handle: Handle) -> T | None:
        try:
            return sample(handle)
        except (PeerError, WrongAnswerError) as error:
            if not handle.contender.is_peer:
                raise
            self.say(f"  {error}")
            told = _without_places(str(error)).strip().splitlines()[-1]
            self.results.failures.setdefault(handle.contender.label, []).append(told)
            return None


def _without_places(text: str) -> str:
    """Return what is to be told of an error, without what is this machine's alone."""
    return text.replace(str(ROOT), ".").replace(str(Path.home()), "~")


def _go_on() -> None:
    """Wait for nothing."""


class Handle:
    """A contender that is there, or will be.

    Parameters
    ----------
    bench : Bench
        The run.
    contender : Contender
        Who.
    servers : mapping
        Where.
    key : str
        What tells it from others with the same label.
    """

    def __init__(self, bench: Bench, contender: Contender, servers: Mapping[Place, Server], key: str = "") -> None:
        self.contender = contender
        self._worker = bench.worker(contender)
        self._options = contender.options(servers[contender.place] if contender.place else None)
        self._key = f"{contender.label}{key}"

    def make(self, **more: object) -> None:
        """Make it."""
        self._ask(["make", self._key, self.contender.kind, self._options | more])

    def first(self, code: str, check: Check) -> float:
        """Make it, run code, end it; return the milliseconds until the result."""
        answer = self._ask(["first", self._key, self.contender.kind, self._options, code])
        self.close()
        self._check(answer["value"], check, code)
        return float(answer["seconds"]) * 1e3

    def timed(self, method: str, check: Check, *arguments: object) -> float:
        """Call a method and return the milliseconds it took."""
        answer = self._ask(["call", self._key, method, arguments])
        self._check(answer["value"], check, arguments[0])
        return float(answer["seconds"]) * 1e3

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method and return what it returns."""
        return self._ask(["call", self._key, method, arguments])["value"]

    def close(self) -> None:
        """End it."""
        self._ask(["close", self._key])

    def _check(self, value: Any, check: Check, code: object) -> None:
        if not check(value):
            raise WrongAnswerError(f"{self.contender.label} gave {value!r} for {str(code)[:200]!r}")

    def _ask(self, question: list[object]) -> Any:
        answer = self._worker.ask(question)
        if "error" in answer:
            raise PeerError(f"{self.contender.label} failed at {str(question[:3])[:200]}:\n{answer['error']}")
        return answer
