"""Following one run on a server without ``exec/v1``: from the request that was sent to how it ended."""

from __future__ import annotations

import time
from enum import Enum, auto

from ..errors import SessionEnded
from ..models import InputRequestEvent
from ..wire.kernel import KernelMessage
from .standard_connection import StandardConnection
from .standard_run import StandardRun
from .steps import AskInput, Failure, Operation

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
    """Takes in the messages of one run, over as many connections as it takes."""

    def __init__(self, connection: StandardConnection, run: StandardRun) -> None:
        self._connection = connection
        self._run = run
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
                elif _tells_death(message):
                    return End.DIED
                elif message.parent_id in self._probes:
                    if message.channel == "shell" and not translator.replied:
                        return End.LOST  # the kernel answers in turn: its answer to our request went by
                elif message.parent_id == translator.msg_id:
                    self._quiet_since = time.monotonic()
                    yield from self._take(message)
            except SessionEnded:
                return End.REMOVED
        return End.COMPLETE

    def _look(self, half: bool) -> Operation[None]:
        """Where nothing comes: is the kernel there, and if it has nothing to do, why do we know nothing of an end?"""
        if time.monotonic() - self._quiet_since < _LOOK_SECONDS:
            return
        state = yield from self._connection.look()
        if state == "idle" and not half and not self._probes:
            yield from self._reopen()

    def _reopen(self) -> Operation[None]:
        """Connect again and ask something: the answer comes after what is still to come, if anything is."""
        self._run.incomplete = True  # what was under way on the old connection is not replayed
        yield from self._connection.disconnect()
        yield from self._connection.open()
        sent = yield from self._connection.probe()
        if not isinstance(sent, Failure):  # else the next look at the connection tells
            self._probes.add(sent)

    def _take(self, message: KernelMessage) -> Operation[None]:
        self._run.begin()
        event = self._run.translator.feed(message)
        if event is None:
            return
        yield from self._run.take(event)
        if isinstance(event, InputRequestEvent):
            value: str = yield AskInput(event)
            self._run.translator.waiting_for_input = False
            yield from self._connection.send("stdin", "input_reply", {"value": value})


def _tells_death(message: KernelMessage) -> bool:
    """Whether the server says, of its own accord, that the kernel died."""
    return message.msg_type == "status" and message.content.get("execution_state") in ("restarting", "dead")
