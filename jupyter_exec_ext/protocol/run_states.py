"""State machine of a run: one request to execute code on one kernel, from sending it to its verdict."""

from __future__ import annotations

from enum import Enum, auto

# Theory.
#
# Three things change while a run lasts, each for reasons of its own. So a run has three states at a time, and each
# input is offered to all three; a state that has no row for an input stays as it is.
#
# `Code`: the kernel's messages about the request.
#
#     UNSENT -> SENT -> TAKEN_UP -> RUNNING -> REPLIED -> COMPLETE
#                                         \-> IDLE ----/
#
#   Completion has two halves, on two channels, in either order: the reply says how the code ended, the idle status
#   that all of its output is out. If one of them does not come, a silence ends the wait (NO_IDLE, NO_REPLY). If the
#   kernel answers a later request but has not replied to this one, or cannot be reached any more, the reply is LOST.
#   A shared kernel may skip the request, which is then taken back and sent again. CLOSED: the run got its verdict
#   without the kernel's word.
#
# `Stop`: the caller's wish.
#
#     GOING -> INTERRUPTED -> STOPPING -> KILLING
#
#   INTERRUPTED is a plain Ctrl-C, from which nothing more follows. STOPPING grants the code a grace period, which ends
#   with a second TIME_UP. Killing a kernel that is not ours means leaving it behind.
#
# `Process`: the kernel's process. RESTARTED: the host has replaced it, and it is unknown which one got the request.
#
# Three rules join them:
#
# - Once a run has ended, the wish no longer changes: the first to come decides about the verdict.
# - TIME_UP does not count once the kernel has replied: no code is left to stop.
# - While the run is being stopped, idle is enough (STOPPED): code that is interrupted before it begins gets no reply.


class Code(Enum):
    """Progress of the code, by the kernel's messages."""

    UNSENT = auto()
    SENT = auto()
    TAKEN_UP = auto()
    RUNNING = auto()
    REPLIED = auto()
    IDLE = auto()
    COMPLETE = auto()
    NO_IDLE = auto()
    NO_REPLY = auto()
    STOPPED = auto()
    LOST = auto()
    CLOSED = auto()


class Stop(Enum):
    """Wish of the caller."""

    GOING = auto()
    INTERRUPTED = auto()
    STOPPING = auto()
    KILLING = auto()


class Process(Enum):
    """State of the kernel's process."""

    ALIVE = auto()
    RESTARTED = auto()
    ENDED = auto()
    REMOVED = auto()


class RunInput(Enum):
    """Event that can change the states of a run."""

    SEND = auto()
    TAKE_BACK = auto()
    #: From the kernel: busy status, start of the code, reply, idle status, answer to a request sent later.
    BUSY = auto()
    START = auto()
    REPLY = auto()
    IDLE = auto()
    LATER_ANSWER = auto()
    #: From clocks: no message for some time, end of the time limit or of the grace period.
    SILENCE = auto()
    TIME_UP = auto()
    #: From the connection: it cannot be made again.
    DISCONNECT = auto()
    #: From callers.
    INTERRUPT = auto()
    STOP = auto()
    KILL = auto()
    CLOSE = auto()
    #: From the supervisor of the process.
    RESTART = auto()
    EXIT = auto()
    REMOVE = auto()


class End(Enum):
    """Reason why nothing more of a run is awaited."""

    COMPLETE = auto()
    LOST = auto()
    DIED = auto()
    REMOVED = auto()
    CLOSED = auto()


_HALVES = {
    RunInput.REPLY: Code.REPLIED,
    RunInput.IDLE: Code.IDLE,
    RunInput.LATER_ANSWER: Code.LOST,
    RunInput.DISCONNECT: Code.LOST,
    RunInput.CLOSE: Code.CLOSED,
}

CODE_TRANSITIONS: dict[Code, dict[RunInput, Code]] = {
    Code.UNSENT: {RunInput.SEND: Code.SENT, RunInput.CLOSE: Code.CLOSED},
    Code.SENT: {RunInput.BUSY: Code.TAKEN_UP, RunInput.START: Code.RUNNING, **_HALVES},
    Code.TAKEN_UP: {RunInput.START: Code.RUNNING, **_HALVES},
    Code.RUNNING: _HALVES,
    Code.REPLIED: {
        RunInput.IDLE: Code.COMPLETE,
        RunInput.SILENCE: Code.NO_IDLE,
        RunInput.DISCONNECT: Code.NO_IDLE,
        RunInput.CLOSE: Code.CLOSED,
    },
    Code.IDLE: {
        RunInput.REPLY: Code.COMPLETE,
        RunInput.SILENCE: Code.NO_REPLY,
        RunInput.LATER_ANSWER: Code.LOST,
        RunInput.DISCONNECT: Code.LOST,
        RunInput.CLOSE: Code.CLOSED,
    },
    Code.COMPLETE: {RunInput.TAKE_BACK: Code.UNSENT},
    Code.NO_IDLE: {RunInput.TAKE_BACK: Code.UNSENT},
    Code.NO_REPLY: {},
    Code.STOPPED: {},
    Code.LOST: {},
    Code.CLOSED: {},
}

STOP_TRANSITIONS: dict[Stop, dict[RunInput, Stop]] = {
    Stop.GOING: {
        RunInput.INTERRUPT: Stop.INTERRUPTED,
        RunInput.STOP: Stop.STOPPING,
        RunInput.TIME_UP: Stop.STOPPING,
        RunInput.KILL: Stop.KILLING,
    },
    Stop.INTERRUPTED: {
        RunInput.STOP: Stop.STOPPING,
        RunInput.TIME_UP: Stop.STOPPING,
        RunInput.KILL: Stop.KILLING,
    },
    Stop.STOPPING: {RunInput.TIME_UP: Stop.KILLING, RunInput.KILL: Stop.KILLING},
    Stop.KILLING: {},
}

PROCESS_TRANSITIONS: dict[Process, dict[RunInput, Process]] = {
    Process.ALIVE: {
        RunInput.RESTART: Process.RESTARTED,
        RunInput.EXIT: Process.ENDED,
        RunInput.REMOVE: Process.REMOVED,
    },
    Process.RESTARTED: {RunInput.EXIT: Process.ENDED, RunInput.REMOVE: Process.REMOVED},
    Process.ENDED: {RunInput.REMOVE: Process.REMOVED},
    Process.REMOVED: {},
}

ENDS: dict[Code, End] = {
    Code.COMPLETE: End.COMPLETE,
    Code.NO_IDLE: End.COMPLETE,
    Code.NO_REPLY: End.COMPLETE,
    Code.STOPPED: End.COMPLETE,
    Code.LOST: End.LOST,
    Code.CLOSED: End.CLOSED,
}


class RunStates:
    """The three states of one run. Pure: inputs are fed, and what follows is read.

    Attributes
    ----------
    code : Code
    stop : Stop
    process : Process
    """

    def __init__(self) -> None:
        self.code = Code.UNSENT
        self.stop = Stop.GOING
        self.process = Process.ALIVE

    def feed(self, input_: RunInput) -> bool:
        """Apply an input; return whether any of the states changed."""
        before = (self.code, self.stop, self.process)
        if self.end is None and not (input_ is RunInput.TIME_UP and self.code is Code.REPLIED):
            self.stop = STOP_TRANSITIONS[self.stop].get(input_, self.stop)
        self.code = CODE_TRANSITIONS[self.code].get(input_, self.code)
        self.process = PROCESS_TRANSITIONS[self.process].get(input_, self.process)
        # Not rows of the table: idle and the wish to stop may come in either order.
        if self.code is Code.IDLE and self.is_stopping:
            self.code = Code.STOPPED
        return before != (self.code, self.stop, self.process)

    @property
    def end(self) -> End | None:
        """Reason why nothing more is awaited; None while the run lasts."""
        end = ENDS.get(self.code)
        if end in (End.COMPLETE, End.CLOSED):  # also where the process ended right after that
            return end
        if self.process is Process.REMOVED:
            return End.REMOVED
        # The kernel that answers a later request may be the new one. The old one took this request with it.
        if self.process is Process.ENDED or (end is End.LOST and self.process is Process.RESTARTED):
            return End.DIED
        return end

    @property
    def is_stopping(self) -> bool:
        """True if the run is to be stopped, with or without a grace period."""
        return self.stop in (Stop.STOPPING, Stop.KILLING)

    @property
    def is_decided(self) -> bool:
        """True if there is something to do: the run has ended or is to be stopped."""
        return self.end is not None or self.is_stopping

    @property
    def has_reply(self) -> bool:
        """True if the kernel has replied."""
        return self.code in (Code.REPLIED, Code.COMPLETE, Code.NO_IDLE)

    @property
    def is_idle(self) -> bool:
        """True if the kernel has reported idle."""
        return self.code in (Code.IDLE, Code.COMPLETE, Code.NO_REPLY, Code.STOPPED)

    @property
    def is_half_complete(self) -> bool:
        """True if one half of completion has come and the other is awaited."""
        return self.code in (Code.REPLIED, Code.IDLE)

    @property
    def can_be_interrupted(self) -> bool:
        """True if an interrupt reaches this code, and not the code that runs next."""
        return self.code in (Code.SENT, Code.TAKEN_UP, Code.RUNNING) and self.end is None
