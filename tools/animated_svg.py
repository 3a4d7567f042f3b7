"""Animated SVG of a terminal beside a panel: a sequence of frames becomes texts that CSS shows and hides.

The file needs no script and no font from elsewhere, so that it plays inside ``<img>`` on a code host. It shows the last
frame where nothing moves: after the last play, and for readers who prefer reduced motion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar
from xml.sax.saxutils import escape

_T = TypeVar("_T")

PLAYS = 3
_CHARACTER = 7.8
_LINE = 19.0
_PADDING = 14.0
_BAR = 32.0
_PANEL_WIDTH = 300.0
_GAP = 12.0
_MONOSPACE = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

# A terminal is dark in both themes. The panel has JupyterLab's colours.
_STYLE = f"""\
text{{font:13px {_MONOSPACE};white-space:pre;fill:#d7dde5}}
.prompt{{fill:#7ee787}}.typed{{fill:#fff}}.title{{fill:#9aa7b4}}
.terminal{{fill:#16202b}}.bar{{fill:#22303e}}.edge{{fill:none;stroke:#808a94;stroke-opacity:.6}}
.panel{{fill:#fff}}.head{{fill:#f0f0f0}}
.heading,.name,.note{{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1f1f1f}}
.heading{{font-weight:600;font-size:12px}}.note{{font-size:12px;fill:#5c5c5c}}.code{{fill:#1f1f1f}}
.bad{{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12px;fill:#b3261e}}
.mark{{fill:#c62828}}
@media(prefers-color-scheme:dark){{.panel{{fill:#111}}.head{{fill:#262626}}.heading,.name,.code{{fill:#ececec}}
.note{{fill:#b0b0b0}}.bad{{fill:#ff9b94}}.mark{{fill:#ef5350}}}}
@media(prefers-reduced-motion:reduce){{*{{animation:none!important}}}}
"""


@dataclass(frozen=True)
class PanelRow:
    """One row of the panel.

    Parameters
    ----------
    style : str
        Class of its text: ``heading``, ``name``, ``note`` or ``code``.
    text, right : str
        The texts at its left and at its right.
    is_bad : bool
        True for something that failed.
    """

    style: str
    text: str
    right: str = ""
    is_bad: bool = False


@dataclass(frozen=True)
class Frame:
    """A picture that is seen for some time.

    Parameters
    ----------
    seconds : float
        How long.
    title : str
        The terminal's.
    lines : tuple of str
        The terminal's; a line that begins with ``$`` is a command.
    rows : tuple of PanelRow
        The panel's.
    typing_seconds : float
        How long the last line takes to be typed, within `seconds`.
    """

    seconds: float
    title: str
    lines: tuple[str, ...]
    rows: tuple[PanelRow, ...]
    typing_seconds: float = 0.0


@dataclass
class _Timeline:
    """Classes for the times at which something is visible."""

    seconds: float
    rules: dict[str, str]

    def percent(self, seconds: float) -> str:
        return f"{100 * seconds / self.seconds:.2f}".rstrip("0").rstrip(".") + "%"

    def visible(self, start: float, end: float) -> str:
        """Return the attribute of an element that is visible from `start` to `end`."""
        is_last = end >= self.seconds - 1e-6
        if start <= 0 and is_last:
            return ""
        name = f"v{self.percent(start)}{'' if is_last else self.percent(end)}".replace("%", "_").replace(".", "-")
        steps = f"0%{{visibility:hidden}}{self.percent(start)}{{visibility:visible}}"
        if start <= 0:
            steps = "0%{visibility:visible}"
        if not is_last:
            steps += f"{self.percent(end)}{{visibility:hidden}}"
        base = "" if is_last else "visibility:hidden;"
        self.rules[name] = (
            f"@keyframes {name}{{{steps}}}.{name}{{{base}animation:{name} {self.seconds:g}s step-end {PLAYS}}}"
        )
        return f' class="{name}"'

    def moved(self, start: float, end: float, distance: float, steps: int) -> str:
        """Return the attribute of an element that moves to the right in steps."""
        name = f"m{self.percent(start)}".replace("%", "_").replace(".", "-")
        self.rules[name] = (
            f"@keyframes {name}{{0%,{self.percent(start)}{{transform:none;animation-timing-function:steps({steps})}}"
            f"{self.percent(end)},to{{transform:translateX({distance:g}px)}}}}"
            f".{name}{{animation:{name} {self.seconds:g}s {PLAYS}}}"
        )
        return f' class="{name}"'


def draw_frames(frames: Sequence[Frame], columns: int, title: str, description: str) -> str:
    """Return an SVG that plays frames.

    Parameters
    ----------
    frames : sequence of Frame
    columns : int
        The terminal's width in characters.
    title, description : str
        Text for readers who do not see the picture.

    Returns
    -------
    str
    """
    rows = max(max(len(frame.lines) for frame in frames), 1)
    terminal = columns * _CHARACTER + 2 * _PADDING
    height = rows * _LINE + _BAR + 2 * _PADDING
    width = terminal + _GAP + _PANEL_WIDTH
    timeline = _Timeline(sum(frame.seconds for frame in frames), {})
    body = [*_terminal(frames, timeline, terminal, height), *_panel(frames, timeline, terminal + _GAP, height)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 -1 {width + 2:g} {height + 2:g}" '
        f'width="{width + 2:g}" height="{height + 2:g}" role="img" aria-labelledby="title description">'
    )
    names = f'<title id="title">{escape(title)}</title>\n<desc id="description">{escape(description)}</desc>'
    style = "\n".join([f"<style>{_STYLE.rstrip()}", *timeline.rules.values(), "</style>"])
    return "\n".join([head, names, style, *body, "</svg>\n"])


def _terminal(frames: Sequence[Frame], timeline: _Timeline, width: float, height: float) -> Iterator[str]:
    yield f'<svg width="{width:g}" height="{height:g}">'
    yield f'<rect class="terminal" width="{width:g}" height="{height:g}" rx="8"/>'
    yield f'<path class="bar" d="M0 {_BAR:g}V8a8 8 0 0 1 8-8h{width - 16:g}a8 8 0 0 1 8 8v{_BAR - 8:g}z"/>'
    for name, start, end in _spans(frames, timeline, [frame.title for frame in frames]):
        yield f'<g{timeline.visible(start, end)}><text class="title" x="{_PADDING:g}" y="21">{escape(name)}</text></g>'
    for index in range(max(len(frame.lines) for frame in frames)):
        shown = [frame.lines[index] if index < len(frame.lines) else None for frame in frames]
        y = _BAR + _PADDING + (index + 1) * _LINE - 6
        for line, start, end in _spans(frames, timeline, shown):
            if line:
                yield f"<g{timeline.visible(start, end)}>{_line(line, y)}</g>"
    yield from _typing(frames, timeline, width)
    yield "</svg>"
    yield f'<rect class="edge" width="{width:g}" height="{height:g}" rx="8"/>'


def _line(line: str, y: float) -> str:
    if line.startswith("$"):
        return _text("prompt", _PADDING, y, "$") + _text("typed", _PADDING + 2 * _CHARACTER, y, line[2:])
    return _text("", _PADDING, y, line)


def _text(style: str, x: float, y: float, text: str) -> str:
    """Return characters that are as wide as the cursor's steps, in any font."""
    named = f' class="{style}"' if style else ""
    indent = len(text) - len(text.lstrip())
    x, text = x + indent * _CHARACTER, text[indent:]
    return (
        f'<text{named} x="{x:g}" y="{y:g}" textLength="{len(text) * _CHARACTER:g}">{escape(text)}</text>'
        if text
        else ""
    )


def _typing(frames: Sequence[Frame], timeline: _Timeline, width: float) -> Iterator[str]:
    """Yield covers that uncover commands, each with a cursor at its left edge."""
    start = 0.0
    for frame in frames:
        if frame.typing_seconds:
            end = start + frame.typing_seconds
            count = len(frame.lines[-1]) - 2
            x, y = _PADDING + 2 * _CHARACTER, _BAR + _PADDING + (len(frame.lines) - 1) * _LINE
            moved = timeline.moved(start, end, count * _CHARACTER, count)
            yield (
                f"<g{timeline.visible(start, end)}><g{moved}>"
                f'<rect class="terminal" x="{x:g}" y="{y:g}" width="{width:g}" height="{_LINE:g}"/>'
                f'<rect x="{x:g}" y="{y + 1:g}" width="{_CHARACTER:g}" height="{_LINE - 3:g}" fill="#d7dde5"/></g></g>'
            )
        start += frame.seconds


def _panel(frames: Sequence[Frame], timeline: _Timeline, left: float, height: float) -> Iterator[str]:
    yield f'<svg x="{left:g}" width="{_PANEL_WIDTH:g}" height="{height:g}">'
    yield f'<rect class="panel" width="{_PANEL_WIDTH:g}" height="{height:g}" rx="8"/>'
    yield f'<path class="head" d="M0 {_BAR:g}V8a8 8 0 0 1 8-8h{_PANEL_WIDTH - 16:g}a8 8 0 0 1 8 8v{_BAR - 8:g}z"/>'
    yield f'<text class="heading" x="{_PADDING:g}" y="21">JupyterLab: agents\' sessions</text>'
    for index in range(max(len(frame.rows) for frame in frames)):
        shown = [frame.rows[index] if index < len(frame.rows) else None for frame in frames]
        y = _BAR + 8 + (index + 1) * (_LINE + 3)
        for row, start, end in _spans(frames, timeline, shown):
            if row is not None:
                yield f"<g{timeline.visible(start, end)}>{_row(row, y)}</g>"
    yield "</svg>"
    yield f'<rect class="edge" x="{left:g}" width="{_PANEL_WIDTH:g}" height="{height:g}" rx="8"/>'


def _row(row: PanelRow, y: float) -> str:
    mark = f'<rect class="mark" x="{_PADDING:g}" y="{y - 14:g}" width="3" height="{_LINE:g}"/>' if row.is_bad else ""
    text = f'<text class="{row.style}" x="{_PADDING + 8:g}" y="{y:g}">{escape(row.text)}</text>'
    style = "bad" if row.is_bad else "note"
    right = (
        f'<text class="{style}" x="{_PANEL_WIDTH - _PADDING:g}" y="{y:g}" text-anchor="end">{escape(row.right)}</text>'
    )
    return mark + text + (right if row.right else "")


def _spans(frames: Sequence[Frame], timeline: _Timeline, shown: Sequence[_T]) -> Iterator[tuple[_T, float, float]]:
    """Yield what is shown in one place, with the times from which and until which it is."""
    start = now = 0.0
    for index, frame in enumerate(frames):
        now += frame.seconds
        if index + 1 == len(frames) or shown[index + 1] != shown[index]:
            yield shown[index], start, timeline.seconds if index + 1 == len(frames) else now
            start = now
