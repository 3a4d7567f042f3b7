"""End of a caller's sessions and executions when the caller's token, or JupyterHub token, ends."""

from __future__ import annotations

from functools import partial

from ...auth.caller import Caller
from ...models import ExecutionState, Token
from ..access.caller_limits import Admission
from ..access.token_watch import TokenWatch, why_ended
from ..concurrency import BackgroundTasks
from ..executions.lifecycle import StopCause
from ..executions.live_execution import LiveExecution
from .live_session import LiveSession


class TokenEnds:
    """Subscriptions of live sessions and executions to the ends of tokens."""

    def __init__(self, token_watch: TokenWatch, admission: Admission, background: BackgroundTasks) -> None:
        self._token_watch = token_watch
        self._admission = admission
        self._background = background

    def follow_session(self, caller: Caller, live: LiveSession) -> None:
        """End a new session soon after its caller's token."""
        # `watch_work` returns what ends the subscription, and the end of the session calls that.
        live.on_end(self._token_watch.watch_work(caller, partial(self._end_session, live)))

    def follow_execution(self, caller: Caller, live: LiveSession, execution: LiveExecution) -> None:
        """End an execution soon after its caller's Hub token: the owner's may run code in another one's session."""
        if caller.is_owner:
            execution.on_end(self._token_watch.watch_work(caller, partial(self._end_execution, live, execution)))

    def _end_session(self, live: LiveSession, token: Token | None) -> None:
        self._admission.forget(live.record.owner)
        # Without asking the kernel to exit: its code has to end within a second of its token.
        self._background.start(live.close(why_ended(token), cut=ExecutionState.TOKEN_REVOKED, now=True))

    def _end_execution(self, live: LiveSession, execution: LiveExecution, token: Token | None) -> None:
        cause = StopCause(ExecutionState.TOKEN_REVOKED, why_ended(token))
        self._background.start(live.stop(execution, cause))
