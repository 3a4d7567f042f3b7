"""What of code's output reaches a terminal, and what a file or a pipe."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.cli.main import main
from jupyter_exec_ext.cli.terminal_text import EscapeFilter, TerminalStream, without_escapes
from tests.support.hosts import Host, clean_environment
from tests.support.terminals import Terminal

from .test_cli import command, jupyter_exec

COLOURS = re.compile(r"\x1b\[[0-9;:]{0,64}m")
CONTROLS = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")
PIECES = st.sampled_from(
    ["\x1b[31m", "\x1b]8;;http://x\x07", "0" * 70, "0;", "31", *"\x1b[]mKA?> x\n\r\x07\\\x9b\x9c\x9dP\x00\x7f\x18"]
)
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=12)

REMOVED = {
    "cursor up": "\x1b[2A",
    "cursor to a place": "\x1b[1;1H",
    "erased screen": "\x1b[2J",
    "erased line": "\x1b[2K",
    "scrolling region": "\x1b[1;2r",
    "other screen": "\x1b[?1049h",
    "bracketed paste": "\x1b[?2004h",
    "mouse reports": "\x1b[?1003h",
    "question that the terminal types the answer to": "\x1b[6n",
    "terminal's name": "\x1b[c",
    "keyboard modes": "\x1b[>4;2m",
    "modes of keys": "\x1b[?4m",
    "soft reset": "\x1b[!p",
    "full reset": "\x1bc",
    "saved cursor": "\x1b7\x1b8",
    "other letters": "\x1b(0\x0e\x0f",
    "double height": "\x1b#3",
    "reverse index": "\x1bM",
    "title": "\x1b]0;title\x07",
    "title that ends as ECMA-48 has it": "\x1b]2;title\x1b\\",
    "clipboard": "\x1b]52;c;Y3VybA==\x07",
    "palette": "\x1b]4;1;rgb:00/00/00\x1b\\",
    "picture": "\x1bPq#0;2;0;0;0~\x1b\\",
    "status string": "\x1bP$q\x22p\x1b\\",
    "application's command": "\x1b_Gf=100;AAAA\x1b\\",
    "private message": "\x1b^x\x1b\\",
    "start of string": "\x1bXx\x1b\\",
    "8-bit sequence": "\x9b2J",
    "8-bit title": "\x9d0;title\x9c",
    "8-bit picture": "\x90q~\x9c",
    "8-bit controls": "\x84\x85\x8d\x80\x9f\x9c",
    "bell and other controls": "\x00\x07\x0b\x0c\x18\x1a\x7f",
    "lone escape": "\x1b\x1b",
}


@pytest.mark.parametrize("sequence", REMOVED.values(), ids=list(REMOVED))
def test_a_sequence_that_steers_is_removed(sequence: str) -> None:
    assert without_escapes(f"before{sequence}\nafter\n") == "before\nafter\n"
    escapes = EscapeFilter()  # whatever pieces it comes in
    assert "".join(map(escapes.feed, f"before{sequence}\nafter\n")) == "before\nafter\n"


@pytest.mark.parametrize(
    "colours", ["\x1b[m", "\x1b[0m", "\x1b[1;31m", "\x1b[38;5;208m", "\x1b[38:2::1:2:3m", "\x1b[4:3m"]
)
def test_colours_pass(colours: str) -> None:
    text = f"{colours}text\x1b[0m\n"
    assert without_escapes(text) == text
    assert "".join(map(EscapeFilter().feed, [text[:2], text[2:4], text[4:]])) == text


def test_a_progress_bar_passes() -> None:
    bar = "".join(f"\r{n:3}%|{'█' * n}\t" for n in range(101)) + "\b\b \n"
    assert without_escapes(bar) == bar


def test_a_link_keeps_its_text() -> None:
    assert without_escapes("\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\.") == "text."


def test_no_sequence_hides_more_than_its_line() -> None:
    assert without_escapes("\x1b]0;hidden\nseen") == "\nseen"
    assert without_escapes("\x1b[" + "0" * 1000 + "seen").endswith("0seen")
    assert without_escapes("\x1b" + " " * 1000 + "seen").endswith(" seen")


def test_open_colours_are_reset_at_the_end() -> None:
    assert without_escapes("\x1b[8mhidden") == "\x1b[8mhidden\x1b[0m"
    assert without_escapes("\x1b[8mhidden\x1b[00m") == "\x1b[8mhidden\x1b[00m"


@given(TEXTS)
def test_any_text_in_any_pieces_keeps_only_colours(pieces: list[str]) -> None:
    escapes, whole = EscapeFilter(), EscapeFilter()
    shown = "".join(map(escapes.feed, pieces)) + escapes.close()
    assert CONTROLS.search(COLOURS.sub("", shown)) is None
    assert whole.feed("".join(pieces)) + whole.close() == shown
    assert without_escapes(shown) == shown
    if CONTROLS.search("".join(pieces)) is None:
        assert shown == "".join(pieces)


@pytest.mark.parametrize("unit", ["\x1b", "\x1b[", "\x1b]", "\x1b[1m", "\x1b[ ", "\x9b", "\x00", "a", "\x1b]\x1b"])
@pytest.mark.timeout(120)  # looking at all that came before, each time, would take hours
def test_no_output_takes_long_to_filter_or_is_kept(unit: str) -> None:
    escapes = EscapeFilter()
    for _ in range(100):
        escapes.feed(unit * 10_000)
        assert len(escapes._kept) <= 66


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


class _Hostile(BaseHTTPRequestHandler):
    """Refuses everything, in words of its own."""

    def do_GET(self) -> None:
        body = json.dumps({"message": "no\x1b]0;title\x07\x1b[2J\x1b[31mway", "code": "forbidden"}).encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def test_server_message_is_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _Tty()
    with HTTPServer(("127.0.0.1", 0), _Hostile) as hostile:
        threading.Thread(target=hostile.serve_forever, daemon=True).start()
        monkeypatch.setattr(sys, "stderr", shown)
        assert main(["session", "list", "--server", f"http://127.0.0.1:{hostile.server_port}/"]) == 3
        hostile.shutdown()
    assert "no\x1b[31mway" in shown.getvalue()
    assert shown.getvalue().endswith("\n\x1b[0m")
    assert sys.stderr is shown


def test_stream_writes_whole_sequences() -> None:
    shown = _Tty()
    stream = TerminalStream(shown)
    stream.writelines(["\x1b]0;title", "seen\n", "\x1b", "[2Jseen"])
    assert shown.getvalue() == "seen\n[2Jseen"


HOSTILE = (
    "import sys\n"
    "print('\\x1b]0;title\\x07\\x1b[2J\\x1b[1;1H\\x9b2J\\x1b[31mred')\n"
    "print('\\x1b[?2004h\\x1b]52;c;eA==\\x07err', file=sys.stderr)\n"
    "print('\\x1b[8m\\x1b]0;', end='')"
)


@pytest.fixture
def server(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


def test_a_terminal_gets_colours_alone(tmp_path: Path, server: Host) -> None:
    env = clean_environment(tmp_path, JUPYTER_TOKEN=str(server.info.token))
    with Terminal([*command("run", "-c", HOSTILE + "\n1/0", "--server", server.info.url)], env, tmp_path) as terminal:
        shown = terminal.read_until("ZeroDivisionError: division by zero")
        assert terminal.process.wait(60) == 1
    assert "\x1b[31mred\n" in shown
    assert "err\n" in shown
    assert CONTROLS.search(COLOURS.sub("", shown)) is None, shown
    for hidden in ("title", "52;c", "2J", "2004"):
        assert hidden not in shown.partition("Traceback")[0]
    assert "\x1b[8m" in shown
    assert (
        shown.index("\x1b[8m") < shown.index("\x1b[0m") < shown.index("Traceback")
    )  # or the traceback would be hidden


def test_input_prompt_of_code_is_filtered(tmp_path: Path, server: Host) -> None:
    env = clean_environment(tmp_path, JUPYTER_TOKEN=str(server.info.token))
    for ask in ("input", "__import__('getpass').getpass"):
        code = f"print({ask}('\\x1b]0;title\\x07\\x1b[2Jname: ') + '!')"
        with Terminal(command("run", "-c", code, "--server", server.info.url), env, tmp_path) as terminal:
            assert CONTROLS.search(terminal.read_until("name: ")) is None
            terminal.type("ada")
            assert CONTROLS.search(terminal.read_until("ada!")) is None
            assert terminal.process.wait(60) == 0


def test_a_pipe_gets_output_as_it_is(tmp_path: Path, server: Host) -> None:
    env = {"env": {"JUPYTER_TOKEN": str(server.info.token)}}
    done = jupyter_exec(tmp_path, "run", "-c", HOSTILE, "--server", server.info.url, **env)
    assert done.stdout == "\x1b]0;title\x07\x1b[2J\x1b[1;1H\x9b2J\x1b[31mred\n\x1b[8m\x1b]0;"
    assert done.stderr == "\x1b[?2004h\x1b]52;c;eA==\x07err\n"


# --- the prefix of errors ---


@pytest.mark.parametrize(
    ("env", "prefix"),
    [
        ({}, "\x1b[31mjupyter exec:\x1b[0m"),
        ({"NO_COLOR": "1"}, "jupyter exec:"),
        ({"NO_COLOR": ""}, "\x1b[31mjupyter exec:\x1b[0m"),
        ({"TERM": "dumb"}, "jupyter exec:"),
    ],
)
def test_error_prefix_is_red_on_a_terminal_that_has_colours(tmp_path: Path, env: dict[str, str], prefix: str) -> None:
    with Terminal(command("sesion"), clean_environment(tmp_path, **({"TERM": "xterm"} | env)), tmp_path) as terminal:
        assert terminal.read_until(" 'jupyter exec' has no command 'sesion'") == prefix


def test_error_prefix_has_no_colour_in_a_file(tmp_path: Path) -> None:
    assert jupyter_exec(tmp_path, "sesion", env={"TERM": "xterm"}).stderr.startswith("jupyter exec: ")
