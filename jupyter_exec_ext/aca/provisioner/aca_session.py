"""An ACA session as what a kernel needs: code is run there with all of its outputs, and names are completed.

One request of a notebook is one run in the session, but for answers that are larger than what the service hands over
at once: the rest is asked for with further runs, which run no code of the user's.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol

from ...errors import ExecError, SessionNotFound, UnexpectedAnswer
from ..protocol.addresses import DATA_DIRECTORY
from ..protocol.run_results import RunResult, bundle_of
from .session_answers import (
    MAX_PACKED_CHARACTERS,
    Answer,
    Piece,
    asking_code,
    failed,
    find_piece,
    is_lost,
    loading_code,
    read_answer,
)

_STREAMS_MAX_LENGTH = 1024 * 1024
_AROUND_PIECE = 64 * 1024  # room for what subprocesses print beside an answer
_FEWEST_CHARACTERS = 512
_LOOK_SECONDS = 5
_OVERTAKEN_SECONDS = 2.0  # after which a run ends with its session, if it was in it
_NO_REASON = "the service said that the run failed, and not why"
# To be unpacked elsewhere than in the loop that all kernels share: as a thousand times as much, it may be large.
_LARGE_CHARACTERS = 4 * 1024


class Client(Protocol):
    """The client of session pools, as far as a kernel needs it."""

    def run(
        self,
        identifier: str,
        code: str,
        *,
        timeout_seconds: int | None = None,
        streams_max_length: int | None = None,
    ) -> Coroutine[Any, Any, RunResult]:
        """Run code in a session."""

    def delete_session(self, identifier: str) -> Coroutine[Any, Any, None]:
        """End a session."""


class SessionExpiredError(Exception):
    """The session has ended, and with it all that code has left in it; the code was not run."""

    def __init__(self) -> None:
        super().__init__(
            "the session on Azure has expired or was ended: its variables and files are gone. This code was not run; "
            "what is run next begins in a fresh session"
        )


class RunFailedError(Exception):
    """The service ended a run in its own way."""


class ACASession:
    """A session, which begins with the first request.

    Parameters
    ----------
    timeout_seconds : int
        How long a run may take.
    environment : mapping
        Variables that code in the session finds in its environment.
    leave : callable
        Takes what is to be done without anybody waiting for it, and logs what that fails with.
    """

    def __init__(
        self,
        client: Client,
        *,
        timeout_seconds: int,
        environment: Mapping[str, str],
        leave: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._client = client
        self._leave = leave
        self._timeout = timeout_seconds
        self._environment = environment
        self._mark = ""
        self._is_plain = False
        self._beginning = asyncio.Lock()
        self._under_way: set[asyncio.Task[RunResult]] = set()
        self.identifier = ""
        self.python_version = ""

    @property
    def begun(self) -> bool:
        """Whether there is something to delete."""
        return bool(self.identifier)

    async def execute(
        self, count: int, code: str, *, silent: bool, store_history: bool, expressions: Mapping[str, Any]
    ) -> Answer:
        """Run code, as the `count`-th of the kernel.

        Raises
        ------
        SessionExpiredError
            If the code was not run since its state is gone.
        RunFailedError
            If the service ended it.
        ExecError
        """
        await self.begin()
        if self._is_plain:
            return await self._execute_plainly(count, code)
        arguments = {"count": count, "code": code, "silent": silent, "store_history": store_history}
        return await self._ask("execute", {**arguments, "expressions": expressions})

    async def ask(self, verb: str, **arguments: Any) -> Mapping[str, Any] | None:
        """Return the session's reply to a question about code; None where there is no IPython to answer it."""
        await self.begin()
        return None if self._is_plain else (await self._ask(verb, arguments)).reply

    async def is_lost(self) -> bool:
        """Return whether the session's state is gone, as far as it tells soon; for after the service ended a run."""
        try:
            await self._ask("about", {}, _LOOK_SECONDS)
        except SessionExpiredError:
            return True
        except (ExecError, RunFailedError):  # it is busy, or cannot be reached: the next run will find out
            return False
        return False

    def delete(self) -> Coroutine[Any, Any, None]:
        """Return what ends the session on Azure, and what runs in it; from now on it is not this one any more."""
        identifier, self.identifier = self.identifier, ""
        return self._delete(identifier, set(self._under_way))

    # --- ---

    async def _delete(self, identifier: str, runs: set[asyncio.Task[RunResult]]) -> None:
        try:
            await self._delete_if_there(identifier)
            if runs:
                await asyncio.wait(runs, timeout=_OVERTAKEN_SECONDS)
        finally:
            for run in runs:
                run.cancel()
        # A request that the deletion has overtaken begins a session of this name, and ends soon in it or goes on.
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
            return await asyncio.shield(run)  # who deletes the session sees to the end of what runs in it
        except SessionNotFound:
            self._forget()
            raise SessionExpiredError from None

    def _forget(self) -> None:
        # Not the same identifier again: two sessions with different state would have the same name. Who asks for one
        # that has expired gets a fresh one under its name, which would count against the caller's limit.
        if self.begun:
            self._leave(self.delete())

    async def begin(self) -> None:
        """Put our part into the session, if that was not done yet; without IPython there, do without it."""
        async with self._beginning:
            if not self.begun:
                await self._load()

    async def _load(self) -> None:
        self.identifier, self._mark = uuid.uuid4().hex, f"_jupyter_exec_{uuid.uuid4().hex}"
        request = self._request("about", {})
        try:
            load = loading_code(self._mark, self._environment, DATA_DIRECTORY)
            result = await self._run(f"{load}\n{asking_code(self._mark, request)}")
            piece = find_piece(self._mark, request["id"], result.stdout)
            self._is_plain = piece is None
            if piece is not None:
                about = (await self._whole(request["id"], piece)).reply
                self.python_version = str(about.get("python", ""))
        except BaseException:
            self._forget()
            raise

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
        result = await self._run(asking_code(self._mark, request), timeout_seconds)
        piece = find_piece(self._mark, request["id"], result.stdout)
        if piece is None:
            self._require_kept(result)
            piece = await self._more(request["id"], 0)
        answer = await self._whole(request["id"], piece)
        if result.stderr:  # past IPython
            answer.messages.insert(0, ("stream", {"name": "stderr", "text": result.stderr}))
        return answer

    def _require_kept(self, result: RunResult) -> None:
        """See to it that an answer which was not printed, or not in full, can be asked for again."""
        if is_lost(self._mark, result.stderr):
            self._forget()
            raise SessionExpiredError
        if not result.ok:
            raise RunFailedError(result.stderr.strip() or _NO_REASON)

    async def _more(self, request_id: str, start: int) -> Piece:
        """Ask for a part of an answer, for less where the service does not hand over as much."""
        request = self._request("more", {}, request_id, start)
        while True:
            result = await self._run(asking_code(self._mark, request))
            piece = find_piece(self._mark, request_id, result.stdout)
            if piece is not None:
                return piece
            self._require_kept(result)
            request["max_characters"] //= 4
            if request["max_characters"] < _FEWEST_CHARACTERS:
                raise UnexpectedAnswer("the service hands over too little of what is printed to read outputs from it")

    async def _whole(self, request_id: str, first: Piece) -> Answer:
        texts, around, length, beside_length = [first.text], [first.around], len(first.text), len(first.around)
        while length < first.total:
            # The user's code can have printed this, too: it must neither be asked for without end nor fill the memory.
            if max(first.total, length + beside_length) > MAX_PACKED_CHARACTERS:
                raise UnexpectedAnswer(f"the session's answer is larger than {MAX_PACKED_CHARACTERS} characters")
            piece = await self._more(request_id, length)
            fewest = min(_FEWEST_CHARACTERS, first.total - length)
            if piece.start != length or len(piece.text) < fewest or piece.total != first.total:
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
        """Run code where there is no IPython: what the service itself tells of it is all there is."""
        result = await self._run(code)
        outputs: list[tuple[str, dict[str, Any]]] = []
        if result.stdout:
            outputs.append(("stream", {"name": "stdout", "text": result.stdout}))
        if not result.ok:
            return failed("RunFailed", result.stderr.strip() or _NO_REASON, outputs)
        if result.stderr:
            outputs.append(("stream", {"name": "stderr", "text": result.stderr}))
        bundle = bundle_of(result.value)
        if bundle is not None:
            outputs.append(("execute_result", {"data": bundle, "metadata": {}, "execution_count": count}))
        return Answer({"status": "ok", "payload": [], "user_expressions": {}}, outputs)
