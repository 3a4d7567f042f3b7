"""``jupyter exec run``: runs code, shows its output as it comes, and exits with the code's own exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..client.durations import duration
from ..client.local_files import write_whole_file
from ..client.sync.client import ExecClient
from ..client.sync.execution_handle import ExecutionHandle
from ..client.sync.session import ExecSession
from ..client.sync.standard_session import StandardExecSession
from ..errors import ApiNotFound, ExecError, KernelSpecNotFound, LanguageNotSupported
from ..executors.code_results import OutputDirectory
from ..models import Execution, ExecutionState, OutputEvent
from ..protocol.languages import normalize_language
from .code_source import CodeSource, read_source
from .common_options import add_command, add_isolation_option
from .exit_codes import EXIT_INTERRUPTED
from .interrupts import Interrupts, ctrl_c
from .kernel_choice import can_run, choose_kernel, print_kernel_fallback
from .messages import UsageError, error_text
from .run_exit_code import exit_code
from .server_choice import add_server_options, client_for
from .terminal_printer import TerminalPrinter, print_approval

_Session = ExecSession | StandardExecSession


def add_run_command(commands: Any) -> None:
    """Add ``jupyter exec run``."""
    parser = add_command(commands, "run", "run code and show its output as it comes", run)
    source = parser.add_mutually_exclusive_group()  # `run` requires one: its message explains where FILE went
    source.add_argument("file", nargs="?", metavar="FILE", help="the code, or a notebook; - for standard input")
    source.add_argument("-c", dest="code", metavar="CODE", help="the code itself")
    parser.add_argument(
        "--kernel",
        metavar="NAME",
        help="kernelspec to start (default: the notebook's; else the server's default, or one of the code's language)",
    )
    add_isolation_option(parser)
    parser.add_argument(
        "--session",
        metavar="ID",
        help="run in this session, by its id, the start of it, or its name, and keep it (default: a new one)",
    )
    parser.add_argument(
        "--language",
        metavar="NAME",
        help="language of the code, such as bash (default: by the file's suffix, else the kernel's)",
    )
    parser.add_argument(
        "--timeout",
        type=duration,
        metavar="TIME",
        help="stop the code after this run time; of a notebook, the cell",
    )
    parser.add_argument(
        "--env",
        type=environment_variable,
        action="append",
        metavar="NAME[=VALUE]",
        help="environment variable for this run alone; NAME alone takes its value from your environment; repeatable",
    )
    parser.add_argument(
        "--output-dir", metavar="DIR", default=".", help="where displayed images and HTML pages are saved (default: .)"
    )
    parser.add_argument(
        "--output-notebook", metavar="OUT.ipynb", help="write the notebook with its outputs here, even if a cell fails"
    )
    add_server_options(parser, None, "a gateway that is started for this and stopped again")
    parser.epilog = (
        "Exit code: 0 if the code ran to its end; the code's own, if it passed one to exit() or sys.exit(), or is a "
        "shell script; 1 for another error; 2 for wrong usage, or a file or directory that cannot be used; 3 if the "
        "server could not be reached, or refused, or the token was revoked or expired meanwhile; 124 if its time was "
        "up, or it was not approved in time; 126 if a person rejected it; 130 if it was interrupted or cancelled; "
        "128+N if signal N ended its kernel or this command; 141 if the reader of the output has gone."
    )


def environment_variable(text: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``, or ``NAME`` with the value that it has in this process.

    Raises
    ------
    argparse.ArgumentTypeError
        If the name is empty, or if there is no such variable.
    """
    name, equals, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} has no name; write NAME=VALUE")
    if equals:
        return name, value
    if name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name} is not set in your environment; write {name}=VALUE")
    return name, os.environ[name]


def run(args: argparse.Namespace) -> int:
    """Run the code and return its exit code."""
    for option, value in (("--isolation", args.isolation), ("--kernel", args.kernel)):
        if args.session and value:
            raise UsageError(f"{option} is for a new session, and --session ID has its own; leave one of them out")
    if args.session and (args.binder or args.docker is not None):
        option = "--binder" if args.binder else "--docker"
        raise UsageError(f"{option} launches a new server, which has no session ID yet; leave one of them out")
    source = read_source(args)
    output_dir = _output_dir(args.output_dir)
    _check_output_notebook(args.output_notebook, source)
    if args.session and args.server is None and args.hub is None:
        args.server = "auto"
    terminal = TerminalPrinter(
        OutputDirectory(output_dir, source.stem), lasting=args.server is not None or args.hub is not None
    )
    with (
        _written_notebook(args.output_notebook, source),
        contextlib.closing(terminal),
        client_for(args) as client,
        _session(client, args, source) as (session, options),
        # Inside of the session: while that starts or ends there is no code to stop, and Ctrl-C ends the command.
        ctrl_c(Interrupts()) as interrupts,
    ):
        try:
            return _run_pieces(session, source, options, interrupts, terminal)
        except LanguageNotSupported as error:  # of a server without exec/v1, whose kernels' languages are not listed
            raise UsageError(f"{error.message}, with --kernel") from error


def _run_pieces(
    session: _Session, source: CodeSource, options: dict[str, Any], interrupts: Interrupts, terminal: TerminalPrinter
) -> int:
    """Run the pieces in order until one fails; return the exit code."""
    last = len(source.pieces) - 1
    for index, code in enumerate(source.pieces):
        with _started(session, code, options, interrupts) as events:
            for event in events:
                terminal.show(event)
        finished = terminal.finished
        assert finished is not None
        if source.notebook is not None:
            source.notebook.record(index, finished)
        if not (finished.ok or _may_fail(source, index, finished)):
            return exit_code(finished)
        # Ctrl-C may come after the end of a cell: the cell has ended well, and the next one must not run.
        if interrupts.is_stopping and index < last:
            return EXIT_INTERRUPTED
    return 0


def _may_fail(source: CodeSource, index: int, finished: Execution) -> bool:
    """Return whether the notebook expects an error of this cell; its kernel must have survived it."""
    expected = source.notebook is not None and source.notebook.may_fail(index)
    return expected and finished.state is ExecutionState.ERROR and finished.session_state_preserved is not False


def _output_dir(path: str) -> Path:
    """Return the directory for pictures, checked before the code runs."""
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is not a directory" if isinstance(error, FileExistsError) else error_text(error)
        raise UsageError(
            f"--output-dir {path} cannot be used ({reason}); name a directory that you can write to"
        ) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageError(f"--output-dir {path} cannot be used (you cannot write to it); name another directory")
    return directory


def _check_output_notebook(path: str | None, source: CodeSource) -> None:
    """Check, before the code runs, that the notebook with its outputs can be written."""
    if path is None:
        return
    if source.notebook is None:
        raise UsageError("--output-notebook goes with a notebook (FILE.ipynb), which is missing; nothing was started")
    directory = Path(path).parent
    if Path(path).is_dir():
        raise UsageError(f"--output-notebook cannot be used: {path} is a directory; name a file in it")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageError(f"--output-notebook cannot be used: {directory} is not a directory that you can write to")


@contextmanager
def _written_notebook(path: str | None, source: CodeSource) -> Iterator[None]:
    """Write the notebook with its outputs when the context ends, also by an error."""
    try:
        yield
    finally:
        # If no cell has run, the file may still have the outputs of an earlier run.
        if path is not None and source.notebook is not None and source.notebook.has_run:
            write_whole_file(Path(path), source.notebook.to_bytes())


@contextmanager
def _session(
    client: ExecClient, args: argparse.Namespace, source: CodeSource
) -> Iterator[tuple[_Session, dict[str, Any]]]:
    """Yield a session for the code, and the options of each of its executions."""
    # A notebook's cells are in its kernel's language, whatever the notebook calls that.
    options = {"timeout_seconds": args.timeout, "language": None if source.notebook is not None else source.language}
    env = dict(args.env or ())
    if args.session:
        session = client.get_session(args.session)
        _check_language(session, source)
        yield session, {**options, "env": env or None}  # it existed before, so it is not closed
        return
    try:
        chosen = choose_kernel(client, source, args.kernel)
        # A run's own variables are for Python kernels. In a new session, others get them with the session.
        is_sessions = chosen.language != "" and normalize_language(chosen.language) != "python"
        new: _Session = client.session(
            chosen.name, name="jupyter exec run", isolation=args.isolation, env=env if env and is_sessions else None
        )
        if env and not is_sessions:
            options["env"] = env
    except ApiNotFound:
        if args.isolation is not None:  # the standard API has no isolation
            raise
        if env:
            raise UsageError(
                f"--env needs the exec/v1 API, which {client.connection_info.url} does not have; install "
                "jupyter_exec_ext there, or set the variables in the code"
            ) from None
        new = _standard_session(client, args.kernel, source)
    with new:
        yield new, options


def _check_language(session: ExecSession, source: CodeSource) -> None:
    """Check that an existing session's kernel runs the code's language."""
    own = session.record.language
    if source.language is not None and not can_run(source.language, own):
        raise UsageError(
            f"the code is {source.language}, and the kernel of the session {session.id} runs {own}; leave --session "
            "out, or choose a session with another kernel"
        )


def _standard_session(client: ExecClient, named: str | None, source: CodeSource) -> StandardExecSession:
    """Start a kernel on a server without ``exec/v1``: the named one, the notebook's, or the default."""
    wanted = source.notebook.kernel_name if source.notebook is not None else None
    if named is None and wanted is not None:
        try:
            return client.standard_session(wanted)
        except KernelSpecNotFound:
            print_kernel_fallback(wanted, "the server's default kernel")
    return client.standard_session(named)


@contextmanager
def _started(
    session: _Session, code: str, options: dict[str, Any], interrupts: Interrupts
) -> Iterator[Iterator[OutputEvent]]:
    """Yield the events of the code. Ctrl-C, and leaving the context early, end this code only."""
    on_input = interrupts.ask if sys.stdin is not None and sys.stdin.isatty() else None
    with contextlib.ExitStack() as undo:
        undo.callback(interrupts.forget)
        if isinstance(session, StandardExecSession):  # its kernel was started for this command, and ends with it
            interrupts.stop = session.interrupt
            yield session.stream(code, **options, on_input=on_input)
            return
        # Not `stream`: Ctrl-C cancels by the execution's id, so other code of a shared session goes on.
        execution = session.submit(code, **options, allow_input=on_input is not None)
        interrupts.stop = execution.cancel
        with contextlib.ExitStack() as cancelling:
            cancelling.callback(_cancel, execution)
            print_approval(execution.record)
            yield execution.events(on_input=on_input)
            cancelling.pop_all()


def _cancel(execution: ExecutionHandle) -> None:
    with contextlib.suppress(ExecError):  # the first error matters more than a failed cancellation
        execution.cancel()
