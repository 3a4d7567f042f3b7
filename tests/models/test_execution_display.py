"""How an execution shows itself to a person: one line, its values, and a notebook's view of it."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.errors import CodeError
from jupyter_exec_ext.models import ErrorInfo, Execution, ExecutionState

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
TIMES = {"started_at": "2026-01-01T00:00:00.000Z", "finished_at": "2026-01-01T00:00:00.021Z"}


def execution(state: ExecutionState = ExecutionState.OK, **fields: Any) -> Execution:
    return Execution("exe_1", "ses_1", state, "code", "2026-01-01T00:00:00.000Z", **{**TIMES, **fields})


def result(plain: str, **others: Any) -> dict[str, Any]:
    return {"output_type": "execute_result", "data": {"text/plain": plain, **others}, "metadata": {}}


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


FAILED = execution(
    ExecutionState.ERROR,
    error=ErrorInfo("ZeroDivisionError", "division by zero", "Traceback …\nZeroDivisionError: division by zero"),
    outputs=[
        {
            "output_type": "error",
            "ename": "ZeroDivisionError",
            "evalue": "division by zero",
            "traceback": ["Traceback …", "\x1b[31mZeroDivisionError\x1b[0m: division by zero"],
        }
    ],
)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (execution(outputs=[result("42")]), "<Execution ok 0.02 s '42'>"),
        (execution(stdout="hello\n", outputs=[stream("hello\n")]), "<Execution ok 0.02 s 'hello'>"),
        (execution(), "<Execution ok 0.02 s>"),
        (execution(ExecutionState.RUNNING, finished_at=None), "<Execution running>"),
        (FAILED, "<Execution error 0.02 s ZeroDivisionError: division by zero>"),
        (
            execution(ExecutionState.TIMEOUT, reason="its time limit of 1 s was reached"),
            "<Execution timeout 0.02 s its time limit of 1 s was reached>",
        ),
    ],
)
def test_repr_is_one_line_with_state_time_and_result(made: Execution, line: str) -> None:
    assert repr(made) == line


def test_repr_of_large_or_hostile_content_stays_short_and_printable() -> None:
    error = ErrorInfo("E\x1b[2J", "a\nb" * 10_000)
    for made in (execution(outputs=[result("x" * 10**6)]), execution(ExecutionState.ERROR, error=error)):
        assert len(repr(made)) <= 120
        assert repr(made).isprintable()


def test_text_is_the_value_or_what_was_printed() -> None:
    both = execution(stdout="printed\n", outputs=[stream("printed\n"), result("42")])
    assert (both.value_text, both.text) == ("42", "42")
    printed = execution(stdout="printed\n", outputs=[stream("printed\n")])
    assert (printed.value_text, printed.text) == (None, "printed")


def test_images_are_decoded_and_saved(tmp_path: Path) -> None:
    made = execution(outputs=[{"output_type": "display_data", "data": {"image/png": PNG}, "metadata": {}}, result("1")])
    (image,) = made.images
    assert image.data == base64.b64decode(PNG)
    assert image.save(tmp_path / "chart") == tmp_path / "chart.png"
    assert image.save(tmp_path / "other.bin").read_bytes() == image.data
    assert f"data:image/png;base64,{PNG}" in image._repr_mimebundle_()["text/html"]


def test_raise_for_error_returns_a_good_one_and_raises_the_traceback_of_another() -> None:
    good = execution()
    assert good.raise_for_error() is good
    with pytest.raises(CodeError, match="ZeroDivisionError: division by zero") as raised:
        FAILED.raise_for_error()
    assert raised.value.execution is FAILED
    assert pickle.loads(pickle.dumps(raised.value)).execution == FAILED
    with pytest.raises(CodeError, match=r"^timeout: it took too long$"):
        execution(ExecutionState.TIMEOUT, reason="it took too long").raise_for_error()
    with pytest.raises(CodeError, match="has not ended: it is running"):
        execution(ExecutionState.RUNNING).raise_for_error()


def test_notebook_shows_outputs_in_order_and_the_error() -> None:
    made = execution(
        ExecutionState.ERROR,
        outputs=[stream("a < b\n"), stream("warning\n", "stderr"), result("'v'"), *FAILED.outputs],
        error=FAILED.error,
    )
    shown = made._repr_mimebundle_()
    html = shown["text/html"]
    positions = [html.index(words) for words in ("a &lt; b", "warning", "&#x27;v&#x27;", "ZeroDivisionError: division")]
    assert positions == sorted(positions)
    assert "\x1b" not in html
    assert shown["text/plain"] == made.to_text()


def test_notebook_runs_no_script_of_the_code() -> None:
    page = "<script>alert(1)</script><table><tr><td>1</td></tr></table>"
    drawing = "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'></svg>"
    made = execution(
        outputs=[
            result("<table>", **{"text/html": page}),
            {"output_type": "display_data", "data": {"image/svg+xml": drawing}, "metadata": {}},
            {"output_type": "display_data", "data": {"application/javascript": "alert(1)"}, "metadata": {}},
            {"output_type": "display_data", "data": {'image/x" onerror="alert(1)': PNG}, "metadata": {}},
            {"output_type": "display_data", "data": {"text/markdown": "<img src=x onerror=alert(1)>"}, "metadata": {}},
        ]
    )
    html = made._repr_mimebundle_()["text/html"]
    assert "<script" not in html
    assert "onload=" not in html
    assert 'onerror="' not in html
    assert "<img src=x" not in html
    assert '<iframe sandbox srcdoc="&lt;script&gt;' in html
    assert '<img src="data:image/svg+xml;base64,' in html
