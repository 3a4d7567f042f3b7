"""Message loop of one run on a server without ``exec/v1``: from the request that was sent to its end.

`run_record` keeps the output and the states of the run; `standard_session` turns them into a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ...errors import SessionEnded
from ...models import InputRequestEvent
from ...protocol.kernel_messages import KernelMessage
from ...protocol.run_states import Code, Process, RunInput
from ..api.steps import AskInput, Failure, Operation
from .kernel_websocket import StandardConnection, tells_death
from .run_record import StandardRun

_SETTLE_SECONDS = 5.0
_LOOK_SECONDS = 10.0


class Follower:
    """Message loop of one run, over as many connections as it takes.

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
        self._states = run.states
        self._note_loss = note_loss
        self._probes: set[str] = set()
        self._quiet_since = 0.0

    def follow(self) -> Operation[None]:
        """Take in messages until the run has ended, was cancelled, or its time (`give_up_at`) is up."""
        run, states = self._run, self._states
        self._quiet_since = time.monotonic()
        while states.end is None and run.cancelled is None:
            now = time.monotonic()
            seconds = _SETTLE_SECONDS if states.is_half_complete else _LOOK_SECONDS
            if states.is_half_complete and now - self._quiet_since > _SETTLE_SECONDS:
                states.feed(RunInput.SILENCE)
                return
            if run.give_up_at is not None and states.code is not Code.REPLIED:
                if now >= run.give_up_at:
                    states.feed(RunInput.TIME_UP)
                    return
                seconds = min(seconds, run.give_up_at - now)
            message = yield from self._connection.receive(seconds)
            if run.cancelled is None:
                try:
                    yield from self._take_in(message)
                except SessionEnded:
                    states.feed(RunInput.REMOVE)

    def _take_in(self, message: KernelMessage | Failure | None) -> Operation[None]:
        if isinstance(message, Failure):
            yield from self._reopen()
        elif message is None:
            yield from self._look()
        elif tells_death(message):
            is_dead = message.content.get("execution_state") == "dead"
            if is_dead or self._states.code is not Code.SENT:
                self._states.feed(RunInput.EXIT)
            else:
                yield from self._ask_restarted()
        elif message.parent_id in self._probes:
            if message.channel == "shell":
                # The kernel answers in turn: its reply to our request was missed, or died with the process before.
                self._states.feed(RunInput.LATER_ANSWER)
        elif message.parent_id == self._run.translator.msg_id:
            self._quiet_since = time.monotonic()
            yield from self._take(message)
        else:
            late = self._connection.late_output.event_of(message)
            if late is not None:
                yield from self._run.take(late)

    def _look(self) -> Operation[None]:
        """Ask the server about the kernel where no message comes."""
        if time.monotonic() - self._quiet_since < _LOOK_SECONDS:
            return
        state = yield from self._connection.look()
        if self._states.process is Process.RESTARTED:
            yield from self._ask()
        elif state == "idle" and not self._states.is_half_complete and not self._probes:
            yield from self._reopen()  # the kernel has nothing to do, so the end of the run was missed

    def _reopen(self) -> Operation[None]:
        """Connect again and ask something: the answer comes after all that is still to come."""
        self._run.incomplete = True  # messages under way on the old connection are not replayed
        yield from self._connection.disconnect()
        yield from self._connection.open()
        yield from self._ask()

    def _ask(self) -> Operation[None]:
        sent = yield from self._connection.probe()
        if not isinstance(sent, Failure):  # else the next look at the connection shows it
            self._probes.add(sent)

    def _ask_restarted(self) -> Operation[None]:
        """Find out which process runs the code, of which nothing came before the server reported a restart.

        If the old process had ended before the request was sent, the new one runs it. If the request was sent to the
        old process, the new one does not know it. The new one answers in turn, so its answer to a question decides.
        """
        self._states.feed(RunInput.RESTART)
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
