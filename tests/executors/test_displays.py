"""What code shows and prints, as an executor's text and files; with servers of ours, others, and without any."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import CodeBlock, EmbeddedIPythonCodeExecutor, JupyterCodeExecutor
from jupyter_exec_ext.executors.stateful_executor import StatefulCodeExecutor
from tests.executors.conftest import SERVERS, python

SHOW = "from IPython.display import display, GeoJSON, JSON\n"
# Sends what it is told to, as it is: IPython would not send lists of lines, or null.
ODD_KERNEL = """
import json
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

class Odd(Kernel):
    implementation = language = banner = "odd"
    implementation_version = language_version = "1"
    language_info = {"name": "odd", "mimetype": "text/plain", "file_extension": ".odd"}

    async def do_execute(self, code, silent, *args, **kwargs):
        kind, content = json.loads(code)
        self.session.send(self.iopub_socket, kind, content, parent=self.get_parent(), ident=self._topic(kind))
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

IPKernelApp.launch_instance(kernel_class=Odd)
"""


@pytest.fixture(scope="module", params=[*SERVERS, "embedded"])
def executor(
    request: pytest.FixtureRequest, hosts: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StatefulCodeExecutor]:
    """One of each kind for all tests: each would start a kernel of its own otherwise."""
    output_dir = tmp_path_factory.mktemp("shown")
    if request.param == "embedded":
        made: StatefulCodeExecutor = EmbeddedIPythonCodeExecutor(output_dir=output_dir)
    else:
        host = request.getfixturevalue("plain_server") if request.param == "plain server" else hosts[request.param]
        made = JupyterCodeExecutor(host.info, output_dir=output_dir)
    with made:
        yield made


def test_no_display_vanishes(executor: StatefulCodeExecutor) -> None:
    shown = {
        "display({'audio/wav': 'UklGRg=='}, raw=True)": ("Audio", b"RIFF"),
        "display({'application/x-thing': 'data'}, raw=True)": ("application/x-thing", b"data"),
        "display(GeoJSON({'type': 'Point'}))": ("GeoJSON", b'{"type":"Point"}'),
        "display({'application/vnd.vegalite.v5+json': {}, 'text/plain': '<VegaLite 5 object>'}, raw=True)": (
            "Vega-Lite",
            b"{}",
        ),
        "display({'text/csv': 'a,b', 'text/plain': '<Table object at 0x1>'}, raw=True)": ("CSV", b"a,b"),
    }
    result = executor.execute_code_blocks(python(SHOW + "\n".join(shown) + "\nJSON({'answer': 42})"))
    *lines, last = result.output.split("\n")
    assert [
        (line.partition(" data saved to ")[0], Path(path).read_bytes())
        for line, path in zip(lines, result.output_files, strict=True)
    ] == list(shown.values())
    assert (result.exit_code, last) == (0, '{"answer":42}')


def test_the_text_is_what_a_terminal_shows_in_the_end_and_can_be_encoded(executor: StatefulCodeExecutor) -> None:
    result = executor.execute_code_blocks(
        python(
            "print('\\x1b[31mFAILED\\x1b[0m test_a')",
            "for n in range(101):\n    print(f'\\r{n:3}%', end='', flush=True)\nprint()",
            "import json\njson.dumps?",
            "print(b'caf\\xe9'.decode('utf-8', 'surrogateescape'))",
            "raise ValueError('\\udce9 \\x1b[1mbold')",
        )
    )
    json.dumps(result.output, ensure_ascii=False).encode()
    assert "\x1b" not in result.output and "\r" not in result.output
    assert result.output.startswith("FAILED test_a\n100%\nSignature:")
    assert "\ncaf\ufffd\n" in result.output
    assert "\nValueError: \ufffd bold\nReplaced: " in result.output


def test_kernels_ask_for_no_colours_lose_no_text_and_draw_plots(executor: StatefulCodeExecutor) -> None:
    tool = "import os\nprint(*map(os.environ.get, ('NO_COLOR', 'FORCE_COLOR', 'CLICOLOR_FORCE', 'TERM')))"
    assert executor.execute_code_blocks(python(tool)).output == "1 None None dumb\n"
    lone = executor.execute_code_blocks(python("print('a\\ud835b')", "'c\\ud800'\nraise ValueError('d\\ud835')"))
    assert lone.output.startswith("a\ufffdb\n") and "\nValueError: d\ufffd\nReplaced: " in lone.output
    pytest.importorskip("vl_convert")
    plot = "{'application/vnd.vegalite.v5+json': {'mark': 'bar', 'data': {'values': [{}]}}}"
    for code in (
        f"display({plot}, raw=True)",
        f"class Plot:\n    def _repr_mimebundle_(self, **kw):\n        return {plot}\nPlot()",
        "display(Plot())",
    ):
        shown = executor.execute_code_blocks(python(code))
        assert [Path(path).suffix for path in shown.output_files] == [".png", ".json"], shown


def test_a_recursion_is_its_first_and_last_frames(executor: StatefulCodeExecutor) -> None:
    code = "def f(n):\n    return f(n + 1)\nf(0)"
    endless = executor.execute_code_blocks(python("import sys; sys.setrecursionlimit(500)", code))
    executor.execute_code_blocks(python("sys.setrecursionlimit(3000)"))
    assert len(endless.output) < 2000
    assert "RecursionError: maximum recursion depth exceeded" in endless.output.split("\n")[-1]
    assert "more times ...]" in endless.output and "f(0)" in endless.output


def test_an_error_that_ipython_prints_itself_is_there_once(executor: StatefulCodeExecutor) -> None:
    for code in ("%nosuchmagic", "%%nosuchcell\nx", "print('before')\nget_ipython().run_line_magic('load_ext', '')"):
        result = executor.execute_code_blocks(python(code))
        assert (result.exit_code, result.output.count("UsageError")) == (1, 1), result
    assert executor.execute_code_blocks(python("print('E: v', end='')\nraise ValueError('E: v')")).output.count("v") > 1


def test_an_empty_script_is_no_error(executor: StatefulCodeExecutor) -> None:
    for code in ("", " \n\t\n", "# only a comment"):
        for language in ("bash", "sh", "python"):
            result = executor.execute_code_blocks([CodeBlock(code, language)])
            assert (result.exit_code, result.output) == (0, "")


def test_long_text_can_be_limited_and_escape_sequences_kept(hosts: Any, tmp_path: Path) -> None:
    def make_ours(**options: Any) -> StatefulCodeExecutor:
        return JupyterCodeExecutor(hosts["server"].info, output_dir=tmp_path, **options)

    def make_embedded(**options: Any) -> StatefulCodeExecutor:
        return EmbeddedIPythonCodeExecutor(output_dir=tmp_path, **options)

    for make in (make_ours, make_embedded):
        with make(max_text_chars=1000, ansi="keep") as executor:
            result = executor.execute_code_blocks(python("print('HEAD', 'é' * 5000)", "print('TAIL')"))
            assert result.output.startswith("HEAD ééé") and result.output.endswith("é\nTAIL\n")
            assert "\n[... 4,011 characters left out ...]\n" in result.output
            assert len(result.output) < 1100
            coloured = executor.execute_code_blocks(python("print('\\x1b[31mred\\x1b[0m\\rR', '\\udce9')"))
            assert coloured.output.startswith("\x1b[31mred\x1b[0m\rR \ufffd\n")
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="max_text_chars"):
                make(max_text_chars=wrong)
        with pytest.raises(ValueError, match="ansi"):
            make(ansi="colours")


def test_lines_are_joined_and_null_is_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tmp_path / "data" / "kernels" / "odd"
    spec.mkdir(parents=True)
    (tmp_path / "odd.py").write_text(ODD_KERNEL)
    argv = [sys.executable, str(tmp_path / "odd.py"), "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Odd", "language": "odd"}))
    monkeypatch.setenv("JUPYTER_PATH", os.pathsep.join([str(tmp_path / "data"), os.environ.get("JUPYTER_PATH", "")]))

    def shown(data: object) -> list[object]:
        return ["display_data", {"data": data, "metadata": {}, "transient": None}]

    expected: list[tuple[list[object], str]] = [
        (shown({"text/plain": ["a\n", "b"]}), "a\nb"),
        (["stream", {"name": "stdout", "text": ["a\n", "b"]}], "a\nb"),
        (["execute_result", {"data": {"text/html": None, "text/plain": ["1"]}, "metadata": {}}], "1"),
        (shown({"image/png": None, "text/plain": "a picture"}), "a picture"),
        (shown({"image/png": None}), "[image/png, no data]"),
        (shown({"image/svg+xml": ["<svg>", "</svg>"]}), "Image data saved to "),
    ]
    with EmbeddedIPythonCodeExecutor(kernel_name="odd", output_dir=tmp_path) as executor:
        for told, output in expected:
            result = executor.execute_code_blocks([CodeBlock(json.dumps(told), "")])
            assert result.output.startswith(output), told
        (path,) = result.output_files
        assert Path(path).read_text() == "<svg></svg>"
