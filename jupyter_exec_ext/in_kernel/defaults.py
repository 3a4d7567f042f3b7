"""Defaults of IPython kernels that run the code of agents: no colours, no lost text, and pictures of plots.

A plot that is shown without a picture (Plotly, Vega, Vega-Lite, Altair) gets a PNG beside it where the kernel's
environment has what draws it: kaleido, or vl-convert. A process of its own draws it at once, within few seconds.

Read by ``protocol/kernel_preparation.py`` and ``forkserver``. A kernel's environment need not have our package,
and its Python and ipykernel may be older.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
from typing import Any

DRAWING_SECONDS = 5.0
MAX_PLOT_CHARACTERS = 8 * 1024 * 1024
#: So many times in a row a kind of plots cannot be drawn until that is not tried any more.
MAX_FAILURES = 3
#: A kernel whose environment has this variable as ``0`` draws no plots.
DRAWS_VARIABLE = "EXEC_STATIC_PLOTS"
_PNG, _PNG_START = "image/png", b"\x89PNG\r\n\x1a\n"
# Without the working directory among the modules: it may have a `json.py`. What else is printed is no picture.
_PROGRAM = """\
import json, os, sys
sys.path[:] = [path for path in sys.path if path]
picture = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
plot = json.load(sys.stdin)
{}
picture.write(drawn)
"""
_VEGA_LITE = "application/vnd.vegalite."
# By the beginnings of MIME types: the modules that draw such plots, and how.
_RENDERERS = {
    "application/vnd.plotly.": (
        ("plotly", "kaleido"),
        "import plotly.io\ndrawn = plotly.io.to_image(plot, format='png', validate=False)",
    ),
    _VEGA_LITE: (("vl_convert",), "import vl_convert\ndrawn = vl_convert.vegalite_to_png(plot)"),
    "application/vnd.vega.": (("vl_convert",), "import vl_convert\ndrawn = vl_convert.vega_to_png(plot)"),
}


def set_defaults(kernel: Any, *, draws_plots: bool) -> None:
    """Set the defaults of a kernel, in its main thread, before its first cell.

    Parameters
    ----------
    draws_plots : bool
        Whether plots get pictures.
    """
    ask_for_no_colours(os.environ)
    kernel.session.pack = functools.partial(pack_anything, kernel.session.pack)
    if draws_plots and os.environ.get(DRAWS_VARIABLE) != "0":
        add_pictures(kernel.shell)


def ask_for_no_colours(environment: Any) -> None:
    """Tell tools that no colours are wanted. ipykernel demands them of all, since notebooks can show them."""
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR"):
        environment.pop(name, None)
    environment.setdefault("NO_COLOR", "1")
    environment["TERM"] = "dumb"


def pack_anything(pack: Any, message: Any) -> Any:
    """Return a message as JSON. Of text with a lone surrogate jupyter_client makes an error, and the text is lost."""
    try:
        return pack(message)
    except UnicodeEncodeError:
        return json.dumps(message, default=str).encode("ascii")  # it escapes a surrogate, which UTF-8 does not have


def add_pictures(shell: Any) -> None:
    """Add pictures to plots, however they are shown: as a cell's value, or by `display`."""
    drawing = Drawing()
    publish, make_formats = shell.display_pub.publish, shell.display_formatter.format

    @functools.wraps(publish)
    def publish_with_picture(data: Any, *args: Any, **kwargs: Any) -> Any:
        return publish(drawing.with_picture(data), *args, **kwargs)

    @functools.wraps(make_formats)
    def formats_with_picture(obj: Any, *args: Any, **kwargs: Any) -> Any:
        data, metadata = make_formats(obj, *args, **kwargs)
        return drawing.with_picture(data, obj), metadata

    shell.display_pub.publish = publish_with_picture
    shell.display_formatter.format = formats_with_picture


class Drawing:
    """Draws plots by processes of their own, until that has failed several times in a row."""

    def __init__(self) -> None:
        self._failures = dict.fromkeys(_RENDERERS, 0)

    def with_picture(self, data: Any, shown: Any = None) -> Any:
        """Return a MIME bundle with a picture of its plot, if it has a plot and no picture, and that can be drawn.

        Parameters
        ----------
        shown : object, optional
            What the bundle is of. Altair's charts are drawn from themselves: their bundle is a page.
        """
        if not isinstance(data, dict) or any(str(mime).startswith("image/") for mime in data):
            return data
        for family, (modules, program) in _RENDERERS.items():
            plot = next((data[mime] for mime in data if str(mime).startswith(family)), None)
            if plot is None and family == _VEGA_LITE and data and _is_chart(shown):
                plot = _specification_of(shown)
            if plot is not None and self._failures[family] < MAX_FAILURES and _are_there(modules):
                picture = _drawn(program, plot)
                # A failure may take `DRAWING_SECONDS`, so a renderer that cannot work is left alone in the end.
                self._failures[family] = 0 if picture else self._failures[family] + 1
                return {**data, _PNG: picture} if picture else data
        return data


def _is_chart(shown: Any) -> bool:
    return type(shown).__module__.startswith("altair.") and hasattr(shown, "to_dict")


def _specification_of(chart: Any) -> Any:
    with contextlib.suppress(Exception):  # the display of the chart itself shows the error
        return chart.to_dict()
    return None


def _drawn(program: str, plot: Any) -> str | None:
    """Return a plot's picture in base64; None if there is none."""
    try:
        text = plot if isinstance(plot, str) else json.dumps(plot)
    except (TypeError, ValueError):  # no plot that can be sent anywhere
        return None
    if len(text) > MAX_PLOT_CHARACTERS:
        return None
    picture = _output_of(_PROGRAM.format(program), text.encode("utf-8", "replace"))
    if picture is None or not picture.startswith(_PNG_START):
        return None
    return base64.b64encode(picture).decode("ascii")


def _are_there(modules: Any) -> bool:
    with contextlib.suppress(ImportError, ValueError):  # what finds modules may be anybody's
        return all(importlib.util.find_spec(name) is not None for name in modules)
    return False


def _output_of(program: str, text: bytes) -> bytes | None:
    """Run a program on `text`; return what it gives, or None if it fails or takes too long."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a group of its own, to be killed with its children
        )
    except OSError:
        return None
    with process:
        try:
            output, _ = process.communicate(text, DRAWING_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:  # with all that it has started, such as a browser
            with contextlib.suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
    return output if process.returncode == 0 else None
