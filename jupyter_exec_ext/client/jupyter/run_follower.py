"""Following one run on a server without ``exec/v1``: from the request that was sent to how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto

from ...errors import SessionEnded
from ...models import InputRequestEvent
from ...protocol.kernel_messages import KernelMessage
from ..api.steps import AskInput, Failure, Operation
from .kernel_websocket import StandardConnection, tells_death
from .run_record import StandardRun

_SETTLE_SECONDS = 5.0
_LOOK_SECONDS = 10.0


class End(Enum):
    """Why there is nothing more to follow."""

    COMPLETE = auto()
    TIME_IS_UP = auto()
    CANCELLED = auto()
    DIED = auto()
    REMOVED = auto()
    LOST = auto()


class Follower:
    """Takes in the messages of one run, over as many connections as it takes.

    Parameters
    ----------
    note_loss : callable
        Its operation is carried out once the code is known to run in another kernel than the code before it.
    """

    def __init__(
        self, connection: StandardConnection, run: StandardRun, note_loss: Callable[[], Operation[None]]
    ) -> None:
        self._connection = connection
        self._run = run
        self._note_loss = note_loss
        self._restarted = False
        self._probes: set[str] = set()
        self._quiet_since = 0.0

    def until(self) -> Operation[End]:
        """Take in messages until the run is complete, was cancelled, cannot be completed, or its time is up."""
        run, translator = self._run, self._run.translator
        self._quiet_since = time.monotonic()
        while not translator.complete:
            now = time.monotonic()
            half = translator.replied or translator.idle
            if run.cancelled is not None:
                return End.CANCELLED
            if half and now - self._quiet_since > _SETTLE_SECONDS:
                return End.COMPLETE
            if run.give_up_at is not None and now >= run.give_up_at and not half:
                return End.TIME_IS_UP
            limits = [_SETTLE_SECONDS if half else _LOOK_SECONDS]
            if run.give_up_at is not None and not half:
                limits.append(run.give_up_at - now)
            message = yield from self._connection.receive(min(limits))
            if run.cancelled is not None:
                return End.CANCELLED
            try:
                if isinstance(message, Failure):
                    yield from self._reopen()
                elif message is None:
                    yield from self._look(half)
                elif tells_death(message):
                    if translator.busy or message.content.get("execution_state") == "dead":
                        return End.DIED
                    yield from self._ask_restarted()
                elif message.parent_id in self._probes:
                    if message.channel == "shell" and not translator.replied:
                        # The kernel answers in turn: its answer to our request went by, or died with the one before.
                        return End.DIED if self._restarted else End.LOST
                elif message.parent_id == translator.msg_id:
                    self._quiet_since = time.monotonic()
                    yield from self._take(message)
                else:
                    late = self._connection.late_output.event_of(message)
                    if late is not None:
                        yield from run.take(late)
            except SessionEnded:
                return End.REMOVED
        return End.COMPLETE

    def _look(self, half: bool) -> Operation[None]:
        """Where nothing comes: is the kernel there, and if it has nothing to do, why do we know nothing of an end?"""
        if time.monotonic() - self._quiet_since < _LOOK_SECONDS:
            return
        state = yield from self._connection.look()
        if self._restarted:
            yield from self._ask()
        elif state == "idle" and not half and not self._probes:
            yield from self._reopen()

    def _reopen(self) -> Operation[None]:
        """Connect again and ask something: the answer comes after what is still to come, if anything is."""
        self._run.incomplete = True  # what was under way on the old connection is not replayed
        yield from self._connection.disconnect()
        yield from self._connection.open()
        yield from self._ask()

    def _ask(self) -> Operation[None]:
        sent = yield from self._connection.probe()
        if not isinstance(sent, Failure):  # else the next look at the connection tells
            self._probes.add(sent)

    def _ask_restarted(self) -> Operation[None]:
        """Find out where the code runs, of which nothing came before the server told of a kernel's end.

        The kernel may have ended before it was sent: then the next one runs it. Or it was sent to the kernel that
        ended. The next one answers in turn, so that the answer to a question tells.
        """
        self._restarted = True
        self._connection.note_restart()
        yield from self._ask()

    def _take(self, message: KernelMessage) -> Operation[None]:
        self._run.begin()
        event = self._run.translator.feed(message)
        if message.channel == "shell":
            self._connection.note_sender(message)
        if self._connection.lost is not None:
            yield from self._note_loss()
        if event is None:
            return
        yield from self._run.take(event)
        if isinstance(event, InputRequestEvent):
            value: str = yield AskInput(event)
            self._run.translator.waiting_for_input = False
            yield from self._connection.send("stdin", "input_reply", {"value": value})
