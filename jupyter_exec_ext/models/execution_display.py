"""Text and HTML of an execution for people: its `repr`, its value, and its output in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .mime_bundles import ImageContent, image_html, normalized_bundle, picture_of
from .model_content import MAX_TRACEBACK_BYTES, error_text, shortened
from .plain_text import fold_repeats, strip_ansi

if TYPE_CHECKING:
    from .execution_records import Execution

_REPR_CHARS = 120
_MAX_PRINTED_BYTES = 100_000
_ERROR_BYTES = 20_000
_PAGE_PX, _ROW_PX, _LEAST_PX = 600, 26, 60
_PRE = '<pre style="{style}">{text}</pre>'


def summary(execution: Execution) -> str:
    """Return one line of at most 120 characters, such as ``<Execution ok 0.02 s '42'>``."""
    seconds = run_seconds(execution)
    words = ["Execution", execution.state.value, *([] if seconds is None else [f"{seconds:.2f} s"])]
    head = f"<{' '.join(words)}"
    if execution.error is not None:
        said = f"{execution.error.name}: {execution.error.value}"
    elif execution.reason and not execution.ok:
        said = execution.reason
    else:
        said = repr(text(execution)[:_REPR_CHARS]) if text(execution) else ""
    line = f"{head} {said}".strip() if said else head
    # One line also if a message has several, and printable whatever the code wrote.
    line = "".join(char if char.isprintable() else " " for char in line)
    return f"{line}>" if len(line) < _REPR_CHARS else f"{line[: _REPR_CHARS - 2]}…>"


def run_seconds(execution: Execution) -> float | None:
    """Return how long the code ran, in seconds; None before its end."""
    if execution.started_at is None or execution.finished_at is None:
        return None
    return max(0.0, (_moment(execution.finished_at) - _moment(execution.started_at)).total_seconds())


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def value_text(execution: Execution) -> str | None:
    """Return the last expression's value as its kernel writes it; None if the code has no value."""
    for output in reversed(execution.outputs):
        if output.get("output_type") == "execute_result":
            plain = normalized_bundle(dict(output.get("data", {}))).get("text/plain")
            return None if plain is None else str(plain)
    return None


def text(execution: Execution) -> str:
    """Return the value or, without one, what was printed."""
    value = value_text(execution)
    return execution.stdout.rstrip("\n") if value is None else value


def images(execution: Execution) -> list[ImageContent]:
    """Return the pictures that were shown, decoded, in order."""
    bundles = [normalized_bundle(dict(output["data"])) for output in execution.outputs if "data" in output]
    found = [picture_of(bundle) for bundle in bundles]
    return [ImageContent(*picture) for picture in found if picture is not None]


def failure_text(execution: Execution) -> str:
    """Return the traceback of an execution that failed, or how it ended."""
    if execution.error is not None:
        error = error_text(execution.error.traceback, execution.error.name, execution.error.value)
        return shortened(fold_repeats(error), MAX_TRACEBACK_BYTES)
    return f"{execution.state.value}: {execution.reason}" if execution.reason else execution.state.value


def as_html(execution: Execution) -> str:
    """Return what a notebook shows below a cell: outputs in order, and the error.

    Pages of the code are shown in frames without scripts: what an agent's code displays must not act in the notebook
    of the person who looks at it.
    """
    return "\n".join(_blocks(execution)) or _pre("(no output)")


def _blocks(execution: Execution) -> Iterator[str]:
    for output in execution.outputs:
        kind = output.get("output_type")
        if kind == "stream":
            printed = strip_ansi(shortened("".join(output["text"]), _MAX_PRINTED_BYTES))
            yield _pre(printed, "background:#fdd;color:#000" if output.get("name") == "stderr" else "")
        elif kind == "error":
            error = error_text("\n".join(output["traceback"]), output["ename"], output["evalue"])
            yield _pre(strip_ansi(shortened(error, _ERROR_BYTES)), "color:#b00020")
        else:
            yield _value(normalized_bundle(dict(output.get("data", {}))))
    if not execution.ok and execution.reason:
        yield _pre(f"{execution.state.value}: {execution.reason}", "color:#b00020")


def bundle_for_notebook(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a displayed value as a notebook may show it: a picture, text, or a frame without scripts."""
    bundle = normalized_bundle(dict(data))
    plain = {"text/plain": bundle.get("text/plain", f"[{', '.join(bundle)}]")}
    return plain if set(bundle) == {"text/plain"} else {**plain, "text/html": _value(bundle)}


def _value(bundle: Mapping[str, Any]) -> str:
    picture = picture_of(bundle)
    if picture is not None:
        return image_html(ImageContent(*picture))
    if "text/html" in bundle:
        page = str(bundle["text/html"])
        height = min(_PAGE_PX, _LEAST_PX + _ROW_PX * page.count("<tr"))
        style = f"width:100%;height:{height}px;border:0;resize:vertical;overflow:auto"
        return f'<iframe sandbox srcdoc="{html.escape(page)}" style="{style}"></iframe>'
    written = next((bundle[mime] for mime in ("text/markdown", "text/latex", "text/plain") if mime in bundle), None)
    return _pre(str(written) if written is not None else f"[{', '.join(bundle)}, not shown]")


def _pre(shown: str, style: str = "") -> str:
    return _PRE.format(style=f"white-space:pre-wrap;{style}", text=html.escape(shown))
