"""ACA session of a kernel: runs code with all of its outputs, and answers questions such as completion.

One request of a notebook is one run in the session. If the answer is larger than one run can return, further runs
fetch the rest, without running code of the user's.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...errors import ExecError, SessionNotFound, UnexpectedAnswer
from ..protocol.addresses import DATA_DIRECTORY
from ..protocol.run_format import RunResult, bundle_of
from .session_answers import (
    MAX_PACKED_CHARACTERS,
    Answer,
    Piece,
    build_loading_code,
    build_request_code,
    failed_answer,
    find_piece,
    is_lost,
    read_answer,
)

if TYPE_CHECKING:
    from ..client.aio.pool_client import AsyncACAClient

_STREAMS_MAX_LENGTH = 1024 * 1024
_AROUND_PIECE = 64 * 1024  # room for text that subprocesses print beside an answer
_MIN_PIECE_CHARACTERS = 512
_CHECK_SECONDS = 5
_OVERTAKEN_SECONDS = 2.0  # a run inside a deleted session ends within this time
_NO_REASON = "the service said that the run failed, and not why"
# Larger answers are unpacked in a thread, since they may expand a thousandfold and all kernels share the loop.
_LARGE_CHARACTERS = 4 * 1024


class SessionExpiredError(Exception):
    """The session has ended with all of its state; the code was not run."""

    def __init__(self) -> None:
        super().__init__(
            "the session on Azure has expired or was ended: its variables and files are gone. This code was not run; "
            "what is run next begins in a fresh session"
        )


class RunFailedError(Exception):
    """The service ended a run without an answer of the kernel."""


class ACASession:
    """A session, which starts with the first request.

    Parameters
    ----------
    client : AsyncACAClient
        Client of the pool.
    timeout_seconds : int
        Time limit of a run.
    environment : mapping of str to str
        Environment variables of code in the session.
    delete_in_background : callable
        Runs the coroutine that deletes the session, which no caller awaits, and logs its failure.
    """

    def __init__(
        self,
        client: AsyncACAClient,
        *,
        timeout_seconds: int,
        environment: Mapping[str, str],
        delete_in_background: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._client = client
        self._delete_in_background = delete_in_background
        self._timeout = timeout_seconds
        self._environment = environment
        self._mark = ""
        self._is_plain = False
        self._starting = asyncio.Lock()  # a cell and an upload can both be first
        self._under_way: set[asyncio.Task[RunResult]] = set()
        self.identifier = ""
        self.python_version = ""

    @property
    def is_started(self) -> bool:
        """True if the session may exist on Azure."""
        return bool(self.identifier)

    async def execute(
        self, count: int, code: str, *, silent: bool, store_history: bool, expressions: Mapping[str, Any]
    ) -> Answer:
        """Run code as the kernel's `count`-th cell.

        Raises
        ------
        SessionExpiredError
            If the session has ended; the code was not run.
        RunFailedError
            If the service ended the run.
        ExecError
            If the service cannot be reached or refuses.
        """
        await self.start()
        if self._is_plain:
            return await self._execute_plainly(count, code)
        arguments = {"count": count, "code": code, "silent": silent, "store_history": store_history}
        return await self._ask("execute", {**arguments, "expressions": expressions})

    async def ask(self, verb: str, **arguments: Any) -> Mapping[str, Any] | None:
        """Return the session's reply to a question about code; None if the session has no IPython."""
        await self.start()
        return None if self._is_plain else (await self._ask(verb, arguments)).reply

    async def is_lost(self) -> bool:
        """Return whether the session lost its state; False if it does not answer soon. Call it after a failed run."""
        try:
            await self._ask("about", {}, _CHECK_SECONDS)
        except SessionExpiredError:
            return True
        except (ExecError, RunFailedError):  # the session is busy or cannot be reached: the next run will show it
            return False
        return False

    def delete(self) -> Coroutine[Any, Any, None]:
        """Return the coroutine that ends the session and its runs on Azure. The next request starts another session."""
        # At once and not in the coroutine, which may start only after the next request.
        identifier, self.identifier = self.identifier, ""
        return self._delete(identifier, set(self._under_way))

    async def _delete(self, identifier: str, runs: set[asyncio.Task[RunResult]]) -> None:
        try:
            await self._delete_if_there(identifier)
            if runs:
                await asyncio.wait(runs, timeout=_OVERTAKEN_SECONDS)
        finally:
            for run in runs:
                run.cancel()
        # A request that arrived after the deletion has started a new session with this name, so delete it again.
        if runs:
            await self._delete_if_there(identifier)

    async def _delete_if_there(self, identifier: str) -> None:
        with suppress(SessionNotFound):
            await self._client.delete_session(identifier)

    async def _run(self, code: str, timeout_seconds: int | None = None) -> RunResult:
        run = asyncio.get_running_loop().create_task(
            self._client.run(
                self.identifier,
                code,
                timeout_seconds=timeout_seconds or self._timeout,
                streams_max_length=_STREAMS_MAX_LENGTH,
            )
        )
        self._under_way.add(run)
        run.add_done_callback(self._under_way.discard)
        try:
            return await asyncio.shield(run)  # `delete` ends the runs of a session
        except SessionNotFound:
            self._forget()
            raise SessionExpiredError from None

    def _forget(self) -> None:
        # Use a new identifier from now on, since two sessions with different state would share a name. Delete the old
        # one: the request to an expired session made a fresh one, which counts against the pool's limit.
        if self.is_started:
            self._delete_in_background(self.delete())

    async def start(self) -> None:
        """Load `in_session` into the session, unless it is loaded. In a session without IPython, run code plainly."""
        async with self._starting:
            if not self.is_started:
                await self._load()

    async def _load(self) -> None:
        self.identifier, self._mark = uuid.uuid4().hex, f"_jupyter_exec_{uuid.uuid4().hex}"
        request = self._request("about", {})
        with contextlib.ExitStack() as undo:  # cancellation, too, must not leave a half-loaded session
            undo.callback(self._forget)
            load = build_loading_code(self._mark, self._environment, DATA_DIRECTORY)
            result = await self._run(f"{load}\n{build_request_code(self._mark, request)}")
            piece = find_piece(self._mark, request["id"], result.stdout)
            self._is_plain = piece is None
            if piece is not None:
                about = (await self._whole(request["id"], piece)).reply
                self.python_version = str(about.get("python", ""))
            undo.pop_all()

    @staticmethod
    def _request(verb: str, arguments: Mapping[str, Any], request_id: str = "", start: int = 0) -> dict[str, Any]:
        return {
            "id": request_id or uuid.uuid4().hex,
            "verb": verb,
            "arguments": dict(arguments),
            "start": start,
            "max_characters": _STREAMS_MAX_LENGTH - _AROUND_PIECE,
        }

    async def _ask(self, verb: str, arguments: Mapping[str, Any], timeout_seconds: int | None = None) -> Answer:
        request = self._request(verb, arguments)
        result = await self._run(build_request_code(self._mark, request), timeout_seconds)
        piece = find_piece(self._mark, request["id"], result.stdout)
        if piece is None:
            self._require_kept(result)
            piece = await self._more(request["id"], 0)  # the code has run: only its answer is fetched
        answer = await self._whole(request["id"], piece)
        if result.stderr:  # printed without IPython
            answer.messages.insert(0, ("stream", {"name": "stderr", "text": result.stderr}))
        return answer

    def _require_kept(self, result: RunResult) -> None:
        """Check that an answer which was not printed completely can be requested again."""
        if is_lost(self._mark, result.stderr):
            self._forget()
            raise SessionExpiredError
        if not result.ok:
            raise RunFailedError(result.stderr.strip() or _NO_REASON)

    async def _more(self, request_id: str, start: int) -> Piece:
        """Fetch a part of an answer; request smaller parts if the service shortens the output."""
        request = self._request("more", {}, request_id, start)
        while True:
            result = await self._run(build_request_code(self._mark, request))
            piece = find_piece(self._mark, request_id, result.stdout)
            if piece is not None:
                return piece
            self._require_kept(result)
            request["max_characters"] //= 4
            if request["max_characters"] < _MIN_PIECE_CHARACTERS:
                raise UnexpectedAnswer("the service hands over too little of what is printed to read outputs from it")

    async def _whole(self, request_id: str, first: Piece) -> Answer:
        texts, around, length, beside_length = [first.text], [first.around], len(first.text), len(first.around)
        while length < first.total:
            # The user's code may have printed this piece, so bound the number of requests and the memory.
            if max(first.total, length + beside_length) > MAX_PACKED_CHARACTERS:
                raise UnexpectedAnswer(f"the session's answer is larger than {MAX_PACKED_CHARACTERS} characters")
            piece = await self._more(request_id, length)
            # Short pieces would mean a run for each few characters.
            shortest = min(_MIN_PIECE_CHARACTERS, first.total - length)
            if piece.start != length or len(piece.text) < shortest or piece.total != first.total:
                raise UnexpectedAnswer("the session's answer is not in one piece")
            texts.append(piece.text)
            around.append(piece.around)
            length += len(piece.text)
            beside_length += len(piece.around)
        text = "".join(texts)
        large = length > _LARGE_CHARACTERS
        answer = await asyncio.to_thread(read_answer, text) if large else read_answer(text)
        beside = "".join(around)
        if beside:
            answer.messages.insert(0, ("stream", {"name": "stdout", "text": beside}))
        return answer

    async def _execute_plainly(self, count: int, code: str) -> Answer:
        """Run code in a session without IPython, with only the outputs that the service itself returns."""
        result = await self._run(code)
        outputs: list[tuple[str, dict[str, Any]]] = []
        if result.stdout:
            outputs.append(("stream", {"name": "stdout", "text": result.stdout}))
        if not result.ok:
            return failed_answer("RunFailed", result.stderr.strip() or _NO_REASON, outputs)
        if result.stderr:
            outputs.append(("stream", {"name": "stderr", "text": result.stderr}))
        bundle = bundle_of(result.value)
        if bundle is not None:
            outputs.append(("execute_result", {"data": bundle, "metadata": {}, "execution_count": count}))
        return Answer({"status": "ok", "payload": [], "user_expressions": {}}, outputs)
