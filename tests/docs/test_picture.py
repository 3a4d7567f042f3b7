"""The README's animated picture shows what the README's commands show, and needs nothing but itself."""

from __future__ import annotations

import os
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from tools.animated_svg import Frame, PanelRow, draw_frames
from tools.make_picture import MAX_BYTES, PICTURE, Terminal, commands_of_readme, make_picture, masked

REMEDY = "docs/images/terminal.svg shows something else than the commands do now: run `python -m tools.make_picture`"
_SVG = "{http://www.w3.org/2000/svg}"


def texts_of(picture: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(f"{_SVG}text")]


def test_picture_made_anew_equals_the_committed_one() -> None:
    made, committed = masked(make_picture()), masked(PICTURE.read_text(encoding="utf-8"))
    assert texts_of(made) == texts_of(committed), REMEDY
    assert made == committed, REMEDY


class Process:
    """A process of a pseudo-terminal whose reads return these pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)
        self.fd, self._writing = os.pipe()
        os.write(self._writing, b"there is something to read")
        self.is_closed = False

    def read(self, size: int) -> bytes:
        return next(self._pieces)

    def close(self, *, force: bool) -> None:
        self.is_closed = True
        os.close(self.fd)
        os.close(self._writing)


@pytest.mark.parametrize("group", [-1, 0, 1, pytest.param(os.getpgrp(), id="own"), 12345678])
def test_closed_terminal_signals_only_groups_of_its_own(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: list[int] = []
    monkeypatch.setattr(os, "tcgetpgrp", lambda fd: group)
    monkeypatch.setattr(os, "killpg", lambda number, end: signalled.append(number))
    process: Any = Process([])
    Terminal(process).close()
    assert process.is_closed
    assert signalled == ([group] * 2 if group == 12345678 else [])


def test_character_that_comes_in_two_reads_is_read() -> None:
    whole = "a … b\n".encode()
    process: Any = Process([whole[:3], whole[3:4], whole[4:]])
    terminal = Terminal(process)
    terminal.read_until("b\n")
    assert terminal.text == "a … b\n"
    process.close(force=True)


def test_picture_needs_nothing_from_elsewhere() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert len(text.encode()) < MAX_BYTES
    tags = {element.tag.removeprefix(_SVG) for element in ElementTree.fromstring(text).iter()}
    assert tags == {"svg", "title", "desc", "style", "g", "rect", "path", "text"}
    assert not re.search(r"url\(|@import|@font-face|href|\son\w+=", text)
    assert set(re.findall(r"https?://[\w.]+", text)) == {"http://www.w3.org", "http://127.0.0.1"}


def test_picture_is_described_and_heeds_the_readers_settings() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    named = {element.get("id") for element in root if element.text and element.get("id")}
    assert named == set(str(root.get("aria-labelledby")).split())
    assert "@media(prefers-color-scheme:dark){" in text
    assert "@media(prefers-reduced-motion:reduce){*{animation:none!important}}" in text


def test_without_animation_the_last_frame_is_seen() -> None:
    row = PanelRow("note", "first row")
    frames = [
        Frame(1, "one", ("$ first",), (row,), typing_seconds=0.5),
        Frame(1, "two", ("$ second", "printed <&"), (PanelRow("code", "[1] x", "running"),)),
        Frame(1, "two", ("$ second", "printed <&"), (PanelRow("code", "[1] x", "3 ms"),)),
    ]
    picture = draw_frames(frames, 20, "title", "description")
    hidden = set(re.findall(r"\.(\w[\w-]*)\{visibility:hidden;", picture))
    seen = [
        "".join(text.itertext())
        for group in ElementTree.fromstring(picture).iter(f"{_SVG}g")
        if group.get("class") not in hidden
        for text in group.iter(f"{_SVG}text")
    ]
    assert seen == ["two", "$", "second", "printed <&", "[1] x", "3 ms"]


def test_masks_hide_times_alone() -> None:
    assert masked('>42 ms< >0.1 s<"timed out 1.3 s"') == '>TIME< >TIME<"timed out TIME"'
    assert masked(">[1] x = 20<22.5s 1 s was reached<") == ">[1] x = 20<22.5s 1 s was reached<"


def test_readme_without_commands_is_refused() -> None:
    with pytest.raises(ValueError, match=r"README\.md has no line"):
        commands_of_readme("# nothing\n")
