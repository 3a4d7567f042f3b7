"""Defaults of kernels for agents: environment, messages, and pictures of plots; by renderers that misbehave, too."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.session import json_packer

from jupyter_exec_ext.in_kernel import defaults
from tests.support.session_processes import ends

VEGA_LITE = "application/vnd.vegalite.v5+json"
BARS = {
    "mark": "bar",
    "data": {"values": [{"a": "x", "b": 28}]},
    "encoding": {"x": {"field": "a"}, "y": {"field": "b", "type": "quantitative"}},
}
PNG_START = base64.b64encode(b"\x89PNG\r\n").decode()
DRAW = "def vegalite_to_png(plot):\n    "


@pytest.fixture
def renderer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a module in the place of vl-convert, for this process and those it starts."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source: str) -> None:
        (tmp_path / "vl_convert.py").write_text(source)

    return write


def has_picture(drawing: defaults.Drawing, plot: Any = BARS, mime: str = VEGA_LITE) -> bool:
    return defaults._PNG in drawing.with_picture({mime: plot, "text/plain": "<VegaLite>"})


@pytest.mark.parametrize("mime", ["application/vnd.vegalite.v4+json", VEGA_LITE, "application/vnd.vegalite.v6.1+json"])
def test_a_plot_gets_the_picture_that_vl_convert_draws(mime: str) -> None:
    pytest.importorskip("vl_convert")
    data = {mime: BARS, "text/plain": "<VegaLite>"}
    drawn = defaults.Drawing().with_picture(data)
    assert drawn == {**data, "image/png": drawn["image/png"]} and drawn["image/png"].startswith(PNG_START)
    assert "image/png" not in data


def test_a_vega_plot_and_one_as_text_are_drawn_as_well() -> None:
    pytest.importorskip("vl_convert")
    bar = {"type": "rect", "encode": {"enter": {"width": {"value": 9}, "height": {"value": 9}}}}
    vega = {"width": 20, "height": 20, "marks": [bar]}
    assert has_picture(defaults.Drawing(), vega, "application/vnd.vega.v5+json")
    assert has_picture(defaults.Drawing(), json.dumps(BARS))


@pytest.mark.parametrize(
    "data",
    [
        {"text/plain": "a"},
        {VEGA_LITE: BARS, "image/png": "QQ=="},
        {VEGA_LITE: BARS, "image/svg+xml": "<svg/>"},
        {"application/json": BARS},
        {VEGA_LITE: None},
        {VEGA_LITE: object()},
        {VEGA_LITE: {"a": float("nan"), "b": {1: object()}}},
        {VEGA_LITE: "x" * (defaults.MAX_PLOT_CHARACTERS + 1)},
        {"application/vnd.plotly.v1+json": {}},  # kaleido is not here
        None,
        "text",
    ],
)
def test_what_needs_no_picture_or_cannot_have_one_stays_as_it_is(data: Any, renderer: Callable[[str], None]) -> None:
    renderer(f"{DRAW}return b'\\x89PNG\\r\\n\\x1a\\n'")
    assert defaults.Drawing().with_picture(data) is data


@pytest.mark.parametrize(
    "source",
    [
        f"{DRAW}raise ValueError('no plot')",
        f"{DRAW}return b'no picture'",
        f"{DRAW}return None",
        f"{DRAW}import os; os._exit(3)",
        f"{DRAW}import os, signal; os.kill(0, signal.SIGKILL)",
        "raise ImportError('broken')",
        "syntax error",
    ],
)
def test_a_renderer_that_fails_is_left_alone_after_some_times(source: str, renderer: Callable[[str], None]) -> None:
    renderer(source)
    drawing = defaults.Drawing()
    assert not any(has_picture(drawing) for _ in range(defaults.MAX_FAILURES))
    renderer(f"{DRAW}print('noise'); return b'\\x89PNG\\r\\n\\x1a\\n'")
    assert not has_picture(drawing)
    assert has_picture(defaults.Drawing())


def test_one_that_fails_now_and_then_is_asked_again(renderer: Callable[[str], None]) -> None:
    renderer(f"{DRAW}return b'\\x89PNG\\r\\n\\x1a\\n' if plot else None")
    drawing = defaults.Drawing()
    for _ in range(2):
        assert [has_picture(drawing, plot) for plot in ({}, {}, BARS)] == [False, False, True]


def test_drawing_ends_in_time_with_all_that_it_started(
    renderer: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "DRAWING_SECONDS", 1.5)
    renderer(
        "import pathlib, subprocess, time\n"
        "def vegalite_to_png(plot):\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        f"    pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n"
        "    time.sleep(600)"
    )
    began = time.monotonic()
    assert not has_picture(defaults.Drawing())
    assert 1.5 <= time.monotonic() - began < 10
    child = int((tmp_path / "child").read_text())
    assert ends(child, within_seconds=5)  # a killed process takes a moment
    assert defaults.DRAWING_SECONDS <= 5


def test_charts_of_altair_are_drawn_from_themselves(renderer: Callable[[str], None]) -> None:
    renderer(f"{DRAW}return b'\\x89PNG\\r\\n\\x1a\\n' + repr(plot).encode()")

    def chart(to_dict: Callable[[], Any]) -> Any:
        return type("Chart", (SimpleNamespace,), {"__module__": "altair.vegalite.v6.api"})(to_dict=to_dict)

    page = {"text/html": "<div>"}
    drawn = defaults.Drawing().with_picture(page, chart(lambda: {"mark": "bar"}))
    assert base64.b64decode(drawn["image/png"]).endswith(b"{'mark': 'bar'}")
    assert defaults.Drawing().with_picture(page, chart(lambda: 1 / 0)) is page
    assert defaults.Drawing().with_picture(page, SimpleNamespace(to_dict=dict)) is page


def test_tools_are_asked_for_no_colours() -> None:
    environment = {"FORCE_COLOR": "1", "CLICOLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-color", "PATH": "p"}
    defaults.ask_for_no_colours(environment)
    assert environment == {"NO_COLOR": "1", "TERM": "dumb", "PATH": "p"}


@pytest.mark.parametrize("text", ["\ud835", "caf\udce9 \ud800", "\udfff" * 3, "plain ü", "😀"])
def test_any_text_can_be_sent(text: str) -> None:
    packed = defaults.pack_anything(json_packer, {"text": text, "data": [1, None]})
    read = json.loads(packed.decode("utf-8", "surrogateescape"))
    assert read == {"text": text, "data": [1, None]}


def test_a_variable_turns_drawing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for value, draws in (("0", False), ("1", True), (None, True)):
        shell = SimpleNamespace(
            display_pub=SimpleNamespace(publish=print), display_formatter=SimpleNamespace(format=print)
        )
        kernel = SimpleNamespace(session=SimpleNamespace(pack=json_packer), shell=shell)
        os.environ.pop(defaults.DRAWS_VARIABLE, None)
        if value is not None:
            os.environ[defaults.DRAWS_VARIABLE] = value
        defaults.set_defaults(kernel, draws_plots=True)
        assert (shell.display_pub.publish is not print) == draws
        defaults.set_defaults(kernel, draws_plots=False)
