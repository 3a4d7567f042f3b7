"""Tools for checkpoints: keep a session's state, go back to it, and branch."""

from __future__ import annotations

import asyncio

from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from ..protocol.checkpoint_request_parsing import MAX_BRANCHES
from ..protocol.request_parsing import MAX_NAME_LENGTH
from .session_choice import resolve_session_id, tie_session_to_client
from .session_tools import SessionArguments, describe_session, describe_sessions
from .tool_call import ToolCall, make_result


class CheckpointArguments(SessionArguments):
    """Arguments of `checkpoint_session`."""

    name: str = Field("", max_length=MAX_NAME_LENGTH, description="Name for people.")
    force: bool = Field(
        False, description="Make it although something cannot be taken along, such as a thread; 'lost' names it."
    )
    replaces: str = Field("", description="Id of an older checkpoint of the session, which is deleted first.")


class RestoreArguments(SessionArguments):
    """Arguments of `restore_session`."""

    checkpoint: str = Field(min_length=1, description="Id of a checkpoint of the session.")
    same_random: bool = Field(
        False, description="Draw the random numbers that the session would have drawn, instead of others."
    )


class BranchArguments(SessionArguments):
    """Arguments of `branch_session`."""

    checkpoint: str = Field("", description="Id of a checkpoint to begin with; by default the session as it is now.")
    count: int = Field(1, ge=1, le=MAX_BRANCHES, description="Number of branches.")


class CheckpointResult(BaseModel):
    """Structured content of `checkpoint_session`."""

    checkpoint: str = Field(description="Id of the checkpoint.")
    session: str
    name: str
    files: bool = Field(description="Whether it has the files of the working directory, too.")
    lost: list[str] = Field(description="Things that it does not have, since it was forced.")


async def checkpoint_session(call: ToolCall, arguments: CheckpointArguments) -> CallToolResult:
    """Make a checkpoint of a session."""
    session_id = resolve_session_id(call, arguments.session)
    if arguments.replaces:  # first, since it may have the last place
        await call.engine.checkpoints.delete(call.caller, session_id, arguments.replaces)
    made = await call.engine.checkpoints.create(call.caller, session_id, arguments.name, force=arguments.force)
    found = CheckpointResult(
        checkpoint=made.id, session=made.session_id, name=made.name, files=made.files, lost=list(map(str, made.lost))
    )
    lost = f"; it is without {', '.join(found.lost)}" if found.lost else ""
    return make_result(found, [TextContent(text=f"{made.id}: checkpoint of {made.session_id}{lost}")])


async def restore_session(call: ToolCall, arguments: RestoreArguments) -> CallToolResult:
    """Take a session back to a checkpoint."""
    session_id = resolve_session_id(call, arguments.session)
    return describe_session(
        await call.engine.checkpoints.restore(
            call.caller, session_id, arguments.checkpoint, same_random=arguments.same_random
        )
    )


async def branch_session(call: ToolCall, arguments: BranchArguments) -> CallToolResult:
    """Make branches of a session, which end with the client as its other sessions do."""
    session_id = resolve_session_id(call, arguments.session)
    branches = await call.engine.checkpoints.branch(
        call.caller, session_id, arguments.checkpoint or None, arguments.count
    )
    await asyncio.gather(*(tie_session_to_client(call, branch.id) for branch in branches))
    return describe_sessions(branches)
