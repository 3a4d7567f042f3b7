"""A session for an agent, which may be idle for long, or as long as the token's policy lets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ApiNotFound, PolicyDenied

if TYPE_CHECKING:
    from ..aio.client import AsyncExecClient, AsyncExecSession, AsyncStandardExecSession
    from ..sync.client import ExecClient, ExecSession, StandardExecSession

#: An agent may wait for a person; its variables should be there when it goes on.
IDLE_TIMEOUT_SECONDS = 24 * 3600.0


def open_patient_session(
    client: ExecClient, kernel_name: str | None, name: str, idle_timeout_seconds: float = IDLE_TIMEOUT_SECONDS
) -> ExecSession | StandardExecSession:
    """Open a session that ends when idle for that long or, where the policy allows less, as long as the server says.

    Servers without ``exec/v1`` are used through the standard kernels API.
    """
    try:
        return client.session(kernel_name, name=name, idle_timeout_seconds=idle_timeout_seconds)
    except PolicyDenied as error:
        if not _is_about_idle_time(error):
            raise
        return client.session(kernel_name, name=name)
    except ApiNotFound:
        return client.standard_session(kernel_name)


async def open_patient_session_async(
    client: AsyncExecClient, kernel_name: str | None, name: str, idle_timeout_seconds: float = IDLE_TIMEOUT_SECONDS
) -> AsyncExecSession | AsyncStandardExecSession:
    """Open a session as `open_patient_session` does."""
    try:
        return await client.session(kernel_name, name=name, idle_timeout_seconds=idle_timeout_seconds)
    except PolicyDenied as error:
        if not _is_about_idle_time(error):
            raise
        return await client.session(kernel_name, name=name)
    except ApiNotFound:
        return await client.standard_session(kernel_name)


def _is_about_idle_time(error: PolicyDenied) -> bool:
    """Whether a session was refused for its idle time alone, so that one with the server's own would not be."""
    return error.limit is not None and error.limit.get("name") == "max_idle_seconds"
