"""Tool table: the tools that a caller sees by its rights, and their dispatch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
)
from pydantic import ValidationError

from ..engine.engine import ExecEngine
from ..errors import ExecError
from ..server.rights import (
    BRANCH,
    CHECKPOINT,
    CONTROL_EXECUTIONS,
    CREATE_SESSION,
    DELETE_SESSIONS,
    READ_EXECUTIONS,
    READ_FILES,
    READ_SESSIONS,
    RUN_CODE,
    WRITE_FILES,
)
from .checkpoint_tools import (
    BranchArguments,
    CheckpointArguments,
    CheckpointResult,
    RestoreArguments,
    branch_session,
    checkpoint_session,
    restore_session,
)
from .code_tools import ExecuteCodeArguments, RunResult, execute_code
from .file_tools import (
    ContentResult,
    DownloadOutputArguments,
    FilesResult,
    ListFilesArguments,
    ReadFileArguments,
    WriteFileArguments,
    WrittenResult,
    download_output,
    list_files,
    read_file,
    write_file,
)
from .mcp_handler import McpRequest
from .session_tools import (
    EndedResult,
    EndSessionArguments,
    NoArguments,
    SessionArguments,
    SessionResult,
    SessionsResult,
    StartSessionArguments,
    end_session,
    interrupt_session,
    list_sessions,
    restart_session,
    start_session,
)
from .tool_call import ToolCall, ToolResult, ToolSpec, make_failure

_MAX_MISTAKES = 5

TOOLS = (
    ToolSpec(
        "execute_code",
        "Run code",
        "Run code in a Jupyter session and return what it prints and shows, including pictures, and any error. "
        "Variables, imports and definitions are kept in the session from one call to the next. The value of the last "
        "expression is shown. Files that the code writes to its working directory are linked.",
        ExecuteCodeArguments,
        RunResult,
        (RUN_CODE,),
        execute_code,
        destructive=True,
        is_cancellable=True,
    ),
    ToolSpec(
        "start_session",
        "Start a session",
        "Start a session with a kernel of its own, and return its id. execute_code makes one by itself; use this for "
        "another kernel, or for several sessions side by side.",
        StartSessionArguments,
        SessionResult,
        (CREATE_SESSION,),
        start_session,
    ),
    ToolSpec(
        "list_sessions",
        "List sessions",
        "List the sessions that this token may use, with their states.",
        NoArguments,
        SessionsResult,
        (READ_SESSIONS,),
        list_sessions,
        read_only=True,
        idempotent=True,
    ),
    ToolSpec(
        "end_session",
        "End a session",
        "End a session and its kernel; its variables are gone. Do this when its work is done.",
        EndSessionArguments,
        EndedResult,
        (DELETE_SESSIONS,),
        end_session,
        destructive=True,
    ),
    ToolSpec(
        "interrupt_session",
        "Interrupt a session",
        "Interrupt the running code of a session, as Ctrl-C would; variables are kept.",
        SessionArguments,
        SessionResult,
        (CONTROL_EXECUTIONS,),
        interrupt_session,
        idempotent=True,
    ),
    ToolSpec(
        "restart_session",
        "Restart a session",
        "Give a session a fresh kernel; its variables are gone, its files stay.",
        SessionArguments,
        SessionResult,
        (CONTROL_EXECUTIONS,),
        restart_session,
        destructive=True,
    ),
    ToolSpec(
        "checkpoint_session",
        "Keep a session's state",
        "Keep the state of a session before you try something: variables, imports and the files of its working "
        "directory. restore_session goes back to it. This needs a Python kernel without isolation, or in a sandbox.",
        CheckpointArguments,
        CheckpointResult,
        (CHECKPOINT,),
        checkpoint_session,
    ),
    ToolSpec(
        "restore_session",
        "Go back to a checkpoint",
        "Take a session back to a checkpoint: variables and files are as they were then. The checkpoint stays.",
        RestoreArguments,
        SessionResult,
        (CHECKPOINT,),
        restore_session,
        destructive=True,
    ),
    ToolSpec(
        "branch_session",
        "Branch a session",
        "Make new sessions with the state of one, each with variables and files of its own, to try several ways side "
        "by side. End those that you do not need any more.",
        BranchArguments,
        SessionsResult,
        (BRANCH,),
        branch_session,
    ),
    ToolSpec(
        "list_files",
        "List files",
        "List the files in a session's working directory.",
        ListFilesArguments,
        FilesResult,
        (READ_FILES,),
        list_files,
        read_only=True,
        idempotent=True,
    ),
    ToolSpec(
        "read_file",
        "Read a file",
        "Read a file of a session, or a part of it.",
        ReadFileArguments,
        ContentResult,
        (READ_FILES,),
        read_file,
        read_only=True,
        idempotent=True,
    ),
    ToolSpec(
        "write_file",
        "Write a file",
        "Write a file into a session's working directory; one that is there is replaced.",
        WriteFileArguments,
        WrittenResult,
        (WRITE_FILES,),
        write_file,
        destructive=True,
        idempotent=True,
    ),
    ToolSpec(
        "download_output",
        "Read a long output",
        "Read an output that was too long for the answer of execute_code, which names it in execution.truncated.",
        DownloadOutputArguments,
        ContentResult,
        (READ_EXECUTIONS,),
        download_output,
        read_only=True,
        idempotent=True,
    ),
)
_BY_NAME = {tool.name: tool for tool in TOOLS}
_LISTED = {tool.name: tool.to_tool() for tool in TOOLS}

Context = ServerRequestContext[Any, McpRequest]


class Tools:
    """Handlers of ``tools/list`` and ``tools/call``."""

    def __init__(self, engine: ExecEngine, note_changes: Callable[[str, Sequence[str]], Awaitable[None]]) -> None:
        self._engine = engine
        self._note_changes = note_changes

    async def list(self, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """List the tools for which the caller has the rights."""
        assert context.request is not None
        scopes = context.request.caller.scopes
        return ListToolsResult(
            tools=[_LISTED[tool.name] for tool in TOOLS if all(right.suffices(scopes) for right in tool.rights)]
        )

    async def call(self, context: Context, params: CallToolRequestParams) -> ToolResult:
        """Call a tool. What stands against it is a result for the model, so that it can act on it."""
        tool = _BY_NAME.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name[:100]}")
        call = ToolCall(self._engine, context, params, self._note_changes)
        try:
            arguments = tool.arguments.model_validate(params.arguments or {})
        except ValidationError as error:
            return make_failure(_describe_mistakes(error))
        try:
            for right in tool.rights:
                await call.request.check(right)
            run = tool.run(call, arguments)
            return await (run if tool.is_cancellable else asyncio.shield(self._engine.background.start(run)))
        except ExecError as error:
            call.request.handler.record_if_denied(error)
            return make_failure(f"{error.code}: {error.message}")


def _describe_mistakes(error: ValidationError) -> str:
    """Return what is wrong with arguments, without their values."""
    found = [f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors()]
    return "invalid_request: " + "; ".join(found[:_MAX_MISTAKES])
