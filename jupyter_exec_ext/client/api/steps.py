"""What a client can ask of the network, as values.

The logic of the client (what to send, what an answer means, when to try again) is written once, as generators that
yield these steps and are sent their outcomes. A driver carries them out: `sync` with requests and websocket-client,
`aio` with aiohttp. A step that could not be carried out has a `Failure` as its outcome; it is not raised, so the
logic decides what it means. What breaks off a step (Ctrl-C, a cancelled task, an error of the user's own callback) is
thrown into the operation, which may ask for a few more steps to tidy up before it passes that on. A driver closes
whatever streams an operation leaves open when it ends or is abandoned.

The idea is httpx's, whose authentication flows are such generators.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ...models import InputRequestEvent

T = TypeVar("T")


IDEMPOTENCY_KEY = "Idempotency-Key"
#: In a Prefer header: send something every three seconds. Who does not know it sends something every 15 seconds.
HEARTBEAT = "heartbeat=3"
#: In a Prefer header (RFC 7240): send no output twice. Who does not know it sends all.
MINIMAL = "return=minimal"


@dataclass(frozen=True, slots=True)
class Request:
    """Send a request and read the whole answer: `Reply` or `Failure`.

    Parameters
    ----------
    path : str
        Below the server's base URL.
    headers : mapping
        They may hold a secret; `repr` does not show them.
    read_timeout_seconds : float
        How long the answer may take to go on.
    total_seconds : float, optional
        How long all of it may take, from the connection's beginning to the answer's end.
    """

    method: str
    path: str
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    read_timeout_seconds: float = 60.0
    total_seconds: float | None = None

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does no more than sending it once."""
        return self.method in ("GET", "PUT", "DELETE") or IDEMPOTENCY_KEY in self.headers


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that was not carried out.

    Parameters
    ----------
    sent : bool
        Whether the server may have received it.
    """

    sent: bool
    message: str


class Source(Protocol):
    """A body that is sent piece by piece."""

    @property
    def size_bytes(self) -> int | None:
        """How long it is; None if only its end will tell."""

    def read(self) -> bytes:
        """Return the next piece, blocking; empty at the end."""

    def sent(self, size: int) -> None:
        """Take note that so many bytes more were passed on."""


@dataclass(frozen=True, slots=True)
class SendBody:
    """Send a request with a body that is too large for memory, and read the whole answer: `Reply` or `Failure`."""

    request: Request
    source: Source


@dataclass(frozen=True, slots=True)
class GetToken:
    """Get the access token to send: an `AccessToken`; raises where there is none.

    Parameters
    ----------
    rejected : str, optional
        One that the service refused, so it must be another.
    claims : str, optional
        What the service wants in it.
    """

    timeout_seconds: float
    rejected: str | None = field(default=None, repr=False)
    claims: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """Do something on this machine that may block, such as writing a file: what it returns; it may raise."""

    action: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Send a request whose answer is read piece by piece: `Stream`, or `Reply` if it is an error, or `Failure`.

    Parameters
    ----------
    total_seconds : float, optional
        After this time the stream is cut, however much still comes.
    """

    request: Request
    total_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that is being read; `handle` is the driver's."""

    headers: Mapping[str, str]
    handle: Any


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Read what has come: bytes, empty at the end, or `Failure`.

    Parameters
    ----------
    silence_seconds : float, optional
        How long nothing may come, where that is shorter than the request allowed.
    """

    stream: Stream
    silence_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Stop reading."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a WebSocket: `Socket` or `Failure`."""

    path: str
    subprotocols: tuple[str, ...]
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Socket:
    """An open WebSocket; `handle` is the driver's."""

    subprotocol: str | None
    handle: Any


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send one WebSocket message: None or `Failure`."""

    socket: Socket
    data: str | bytes


@dataclass(frozen=True, slots=True)
class ReceiveMessage:
    """Receive one WebSocket message: text, bytes, None when the time is up, or `Failure`."""

    socket: Socket
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close a WebSocket."""

    socket: Socket


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand an event to whoever reads: the outputs of an execution, or what happens on a server."""

    event: Any


@dataclass(frozen=True, slots=True)
class AskInput:
    """Ask the user for what the code's ``input()`` wants: the text."""

    event: InputRequestEvent


STREAM_IS_OPEN = "a stream of this session is still open here; read it to its end or close it before the next run"

Step = (
    Request
    | SendBody
    | GetToken
    | Work
    | OpenStream
    | ReadStream
    | CloseStream
    | Connect
    | SendMessage
    | ReceiveMessage
    | Disconnect
    | Pause
    | Emit
    | AskInput
)
Operation = Generator[Step, Any, T]


class Result:
    """Where a driver puts the result of an operation whose events are iterated over."""

    value: Any = None
