"""``jupyter exec run``: runs code, shows its output as it comes, and exits with the code's own exit code."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ..client.sync.client import ExecClient
from ..client.sync.execution_handle import ExecutionHandle
from ..client.sync.session import ExecSession, StandardExecSession
from ..errors import ApiNotFound, ExecError
from ..executors.code_results import OutputDirectory
from ..models import (
    Decision,
    DisplayEvent,
    EndEvent,
    ErrorEvent,
    Execution,
    ExecutionState,
    InputRequestEvent,
    OutputEvent,
    ResponsiveEvent,
    ResultEvent,
    StreamEvent,
    TruncatedEvent,
    UnresponsiveEvent,
)
from ..models.model_content import error_text, is_printed
from ..models.plain_text import fold_repeats
from ..protocol.languages import normalize_language
from ..protocol.output_joining import truncation_marker
from .common_options import add_command, add_isolation_option, duration
from .server_choice import UsageError, add_server_options, client_for
from .terminal_text import EscapeFilter, printable, without_escapes

_LANGUAGES = {".sh": "bash", ".bash": "bash"}
_KEPT_CHARACTERS = 4000  # of the printed text, in which a traceback may already be
# The first is that of timeout(1). Shells use the others: for a command that may not run, and for SIGINT.
_EXIT_TIMEOUT, _EXIT_REJECTED, _EXIT_INTERRUPTED = 124, 126, 130
_SHELLS = ("bash", "sh")
_SHELL_EXIT = re.compile(r"Command '.*' returned non-zero exit status (\d{1,3})\.", re.DOTALL)
# Longer numbers are texts: Python neither writes nor reads them.
_EXIT_NUMBER = re.compile(r"-?[0-9]{1,4300}")
_EXIT_TOKEN_ENDED = 3  # as for a token that is refused from the start


def add_run_command(commands: Any) -> None:
    """Add ``jupyter exec run``."""
    parser = add_command(commands, "run", "run code and show its output as it comes", run)
    source = parser.add_mutually_exclusive_group()  # `run` requires one: its message explains where FILE went
    source.add_argument("file", nargs="?", metavar="FILE", help="the code; - for standard input")
    source.add_argument("-c", dest="code", metavar="CODE", help="the code itself")
    parser.add_argument("--kernel", metavar="NAME", help="kernelspec to start (default: the server's)")
    add_isolation_option(parser)
    parser.add_argument("--session", metavar="ID", help="run in this session and keep it (default: a new one)")
    parser.add_argument("--language", metavar="NAME", help="language of the code, such as bash (default: the kernel's)")
    parser.add_argument("--timeout", type=duration, metavar="TIME", help="stop the code after this run time")
    parser.add_argument(
        "--output-dir", metavar="DIR", default=".", help="where displayed images and HTML pages are saved (default: .)"
    )
    add_server_options(parser, None, "a gateway that is started for this and stopped again")
    parser.epilog = (
        "Exit code: 0 if the code ran to its end; what it passed to sys.exit(); 1 for another error; 124 if its time "
        "was up; 126 if a person rejected it; 130 if it was interrupted; 128+N if signal N ended its kernel; 3 if the "
        "server failed, or the token ended."
    )


def run(args: argparse.Namespace) -> int:
    """Run the code and return its exit code."""
    if args.session and args.isolation:
        raise UsageError("--isolation is for a new session, and --session ID has its own; leave one of them out")
    if args.session and (args.binder or args.docker is not None):
        option = "--binder" if args.binder else "--docker"
        raise UsageError(f"{option} launches a new server, which has no session ID yet; leave one of them out")
    code, stem = _source(args)
    output_dir = _output_dir(args.output_dir)
    if args.session and args.server is None and args.hub is None:
        args.server = "auto"
    language = args.language or _LANGUAGES.get(Path(args.file or "").suffix.lower())
    options = {"timeout_seconds": args.timeout, "language": language}
    terminal = _Terminal(OutputDirectory(output_dir, stem), lasting=args.server is not None or args.hub is not None)
    with (
        contextlib.closing(terminal),
        client_for(args) as client,
        _session(client, args) as session,
        # Inside of the session: while that starts or ends there is no code to stop, and Ctrl-C ends the command.
        ctrl_c(Interrupts()) as interrupts,
        _started(session, code, options, interrupts) as events,
    ):
        for event in events:
            terminal.show(event)
    assert terminal.finished is not None
    return exit_code(terminal.finished)


def _source(args: argparse.Namespace) -> tuple[str, str]:
    """Return the code, and the stem for names of displayed files."""
    if args.code is not None:
        return args.code, "output"
    if args.file is None:
        raise UsageError(_no_code(args.docker))
    if args.file == "-":
        if sys.stdin is None:
            raise UsageError("there is no standard input to read the code from")
        return sys.stdin.read(), "output"
    try:
        return Path(args.file).read_text(encoding="utf-8"), Path(args.file).stem
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the code cannot be read: {error}") from error


def _no_code(image: str | None) -> str:
    """Return the message for missing code; ``--docker``, whose IMAGE is optional, may have taken FILE."""
    if image and Path(image).is_file():
        return f"{image} was taken for the image; put the file before --docker, or write --docker=IMAGE"
    return "one of the arguments FILE -c is required"


def _output_dir(path: str) -> Path:
    """Return the directory for pictures, checked before the code runs."""
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output-dir cannot be used: {error}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageError(f"--output-dir cannot be used: {directory} is not writable")
    return directory


@contextmanager
def _session(client: ExecClient, args: argparse.Namespace) -> Iterator[ExecSession | StandardExecSession]:
    if args.session:
        yield client.get_session(args.session)  # it existed before, so it is not closed
        return
    try:
        session: ExecSession | StandardExecSession = client.session(
            args.kernel, name="jupyter exec run", isolation=args.isolation
        )
    except ApiNotFound:
        if args.isolation is not None:  # the standard API has no isolation
            raise
        session = client.standard_session(args.kernel)
    with session:
        yield session


@contextmanager
def _started(
    session: ExecSession | StandardExecSession, code: str, options: dict[str, Any], interrupts: Interrupts
) -> Iterator[Iterator[OutputEvent]]:
    """Yield the events of the code. Ctrl-C, and leaving the context early, end this code only."""
    on_input = interrupts.ask if sys.stdin is not None and sys.stdin.isatty() else None
    if isinstance(session, StandardExecSession):  # its kernel was started for this command, and ends with it
        interrupts.stop = session.interrupt
        yield session.stream(code, **options, on_input=on_input)
        return
    # Not `stream`: Ctrl-C cancels by the execution's id, so other code of a shared session goes on.
    execution = session.submit(code, **options, allow_input=on_input is not None)
    interrupts.stop = execution.cancel
    with contextlib.ExitStack() as undo:
        undo.callback(_cancel, execution)
        _print_approval(execution.record)
        yield execution.events(on_input=on_input)
        undo.pop_all()


def _cancel(execution: ExecutionHandle) -> None:
    with contextlib.suppress(ExecError):  # the first error matters more than a failed cancellation
        execution.cancel()


def _print_approval(execution: Execution) -> None:
    approval = execution.approval
    if approval is not None and execution.state is ExecutionState.AWAITING_APPROVAL:
        print(
            f"jupyter exec: the code waits until {approval.expires_at} for the approval of the server's owner, since "
            f"{printable(approval.why)}; to approve it: jupyter exec approve accept {execution.id}",
            file=sys.stderr,
        )


def _print_editing(execution: Execution) -> None:
    approval = execution.approval
    if approval is not None and approval.decision is Decision.EDITED:
        because = f": {printable(approval.reason)}" if approval.reason else ""
        by = printable(approval.decided_by)
        print(f"jupyter exec: what ran is not the code as it was sent; {by} edited it{because}", file=sys.stderr)


class Interrupts:
    """Handler of Ctrl-C while code runs: the first one stops the code, the second one ends the command.

    Attributes
    ----------
    stop : callable or None
        Stops the code; None until the code is sent.
    """

    def __init__(self) -> None:
        self.stop: Callable[[], object] | None = None
        self._stopping = False
        self._asking = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Handle SIGINT."""
        if self.stop is None or self._stopping or self._asking:
            raise KeyboardInterrupt
        self._stopping = True
        print("Interrupting; once more to leave.", file=sys.stderr)
        threading.Thread(target=self._stop, args=(self.stop,), daemon=True).start()  # the main thread must go on

    def _stop(self, stop: Callable[[], object]) -> None:
        try:
            stop()
        except ExecError as error:
            print(f"jupyter exec: the code could not be interrupted: {error.message}", file=sys.stderr)

    def ask(self, event: InputRequestEvent) -> str:
        """Ask the user for the answer to the code's ``input()``; Ctrl-C here sends no answer."""
        self._asking = True
        try:
            prompt = without_escapes(event.prompt)
            return getpass.getpass(prompt) if event.password else input(prompt)
        except EOFError:
            print("\njupyter exec: there is no more input; the code is cancelled", file=sys.stderr)
            # Ends the stream like a second Ctrl-C, and leaving its context cancels the code.
            raise KeyboardInterrupt from None
        finally:
            self._asking = False


@contextmanager
def ctrl_c(interrupts: Interrupts) -> Iterator[Interrupts]:
    """Handle Ctrl-C by `interrupts`."""
    previous = signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, previous)


class _Terminal:
    """Printer of output events; on a `lasting` server, it also prints where output beyond the cap is kept."""

    def __init__(self, saver: OutputDirectory, *, lasting: bool) -> None:
        self._saver = saver
        self._lasting = lasting
        self._filters = {"stdout": EscapeFilter(), "stderr": EscapeFilter()}
        self._printed = ""  # the end of the printed text
        self.finished: Execution | None = None

    def show(self, event: OutputEvent) -> None:
        """Print an event; colours of the code's output are reset before any other text."""
        if isinstance(event, StreamEvent):
            name = "stderr" if event.name == "stderr" else "stdout"
            file = getattr(sys, name)
            is_terminal = file is not None and file.isatty()
            print(self._filters[name].feed(event.text) if is_terminal else event.text, end="", file=file, flush=True)
            self._printed = (self._printed + event.text[-_KEPT_CHARACTERS:])[-_KEPT_CHARACTERS:]
            return
        self.close()
        if isinstance(event, (DisplayEvent, ResultEvent)):
            for piece in self._saver.text(event.data):
                print(piece, flush=True)
        elif isinstance(event, ErrorEvent):
            error = error_text(event.traceback, event.name, event.value)
            if event.name != "SystemExit" and not is_printed(error, self._printed):
                print(fold_repeats(error), file=sys.stderr)
        elif isinstance(event, TruncatedEvent):
            print(truncation_marker(event.truncated.dropped_bytes, "output").strip(), file=sys.stderr)
        elif isinstance(event, UnresponsiveEvent):
            print(f"jupyter exec: the kernel is unresponsive: {event.reason}", file=sys.stderr)
        elif isinstance(event, ResponsiveEvent):
            print("jupyter exec: the kernel answers again", file=sys.stderr)
        elif isinstance(event, EndEvent):
            self.finished = event.execution
            _print_editing(event.execution)
            if event.execution.reason:
                print(f"jupyter exec: {event.execution.reason}", file=sys.stderr)
            advice = _spool_hint(event.execution)
            if self._lasting and advice is not None:
                print(f"jupyter exec: {advice}", file=sys.stderr)

    def close(self) -> None:
        """Reset colours that the code's output has left on."""
        for name, escapes in self._filters.items():
            if reset := escapes.close():
                print(reset, end="", file=getattr(sys, name), flush=True)


def _spool_hint(execution: Execution) -> str | None:
    """Return the command that downloads output beyond the cap; None if none is kept."""
    if not execution.spooled:
        return None
    names = ", ".join(output.name for output in execution.spooled[:10])
    return f"the output left out is kept: jupyter exec output download {execution.id} NAME (of {names})"


def exit_code(execution: Execution) -> int:
    """Return the exit code of a finished execution; see the command's help."""
    if execution.state is ExecutionState.OK:
        return 0
    if execution.state is ExecutionState.TIMEOUT:
        return _EXIT_TIMEOUT
    if execution.state in (ExecutionState.INTERRUPTED, ExecutionState.CANCELLED):
        return _EXIT_INTERRUPTED
    if execution.state is ExecutionState.REJECTED:
        return _EXIT_REJECTED
    if execution.state is ExecutionState.TOKEN_REVOKED:
        return _EXIT_TOKEN_ENDED
    if execution.kernel_signal is not None:
        number = getattr(signal, execution.kernel_signal, None)
        return 128 + int(number) if number is not None else 1
    if execution.error is not None and execution.error.name == "SystemExit":
        return _system_exit(execution.error.value)
    if execution.error is not None and execution.error.name == "CalledProcessError":
        # IPython's %%bash raises this error for the shell's exit code; Python code may raise it for any other command.
        match = (
            _SHELL_EXIT.fullmatch(execution.error.value)
            if normalize_language(execution.language or "") in _SHELLS
            else None
        )
        return int(match[1]) if match else 1
    return execution.kernel_exit_code or 1  # a kernel that exits with 0 has not finished the code either


def _system_exit(value: str) -> int:
    """Return Python's exit code for a `SystemExit`: its number, 0 for None, else 1 with the object printed."""
    if value in ("", "None"):
        return 0
    if _EXIT_NUMBER.fullmatch(value):
        return int(value) & 0xFF  # as the operating system cuts it
    print(value, file=sys.stderr)
    return 1
