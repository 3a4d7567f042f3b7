from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.executors.code_results import OutputDirectory, ResultCollector
from jupyter_exec_ext.models import Execution, ExecutionState, Truncation

PNG = base64.b64encode(b"\x89PNG picture").decode()


def execution(*outputs: dict[str, Any], state: ExecutionState = ExecutionState.OK, **fields: Any) -> Execution:
    return Execution(id="e", session_id="s", state=state, code="", created_at="t", outputs=outputs, **fields)


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def display(**data: Any) -> dict[str, Any]:
    mimes = {name.replace("__", "/").replace("_", "+" if "svg" in name else "_"): value for name, value in data.items()}
    return {"output_type": "display_data", "data": mimes, "metadata": {}}


def collect(tmp_path: Path, *executions: Execution) -> ResultCollector:
    collector = ResultCollector(tmp_path)
    for one in executions:
        collector.add(one)
    return collector


def test_text_is_joined_without_adding_or_losing_line_breaks(tmp_path: Path) -> None:
    first = execution(stream("a"), stream("warn\n", "stderr"), display(text__plain="5"))
    assert collect(tmp_path, first, execution(stream("b\n"))).text == "a\nwarn\n5\nb\n"


@pytest.mark.parametrize(
    ("mime", "value", "extension", "content"),
    [
        ("image/png", PNG, "png", b"\x89PNG picture"),
        ("image/png", f"{PNG[:8]}\n{PNG[8:]}\n", "png", b"\x89PNG picture"),
        ("image/jpeg", base64.b64encode(b"jpeg").decode(), "jpg", b"jpeg"),
        ("image/gif", base64.b64encode(b"gif").decode(), "gif", b"gif"),
        ("image/svg+xml", "<svg>ü</svg>", "svg", "<svg>ü</svg>".encode()),
        ("application/pdf", base64.b64encode(b"%PDF").decode(), "pdf", b"%PDF"),
    ],
)
def test_pictures_of_every_kind_are_saved(
    tmp_path: Path, mime: str, value: str, extension: str, content: bytes
) -> None:
    data = {mime: value, "text/plain": "<Figure size 640x480 with 1 Axes>"}
    collector = collect(tmp_path, execution({"output_type": "display_data", "data": data, "metadata": {}}))
    (path,) = collector.files
    assert Path(path).is_absolute()
    assert Path(path).suffix == f".{extension}"
    assert Path(path).read_bytes() == content
    assert collector.text == f"{'PDF' if extension == 'pdf' else 'Image'} data saved to {path}"


def test_a_table_is_saved_as_html_and_its_text_kept(tmp_path: Path) -> None:
    collector = collect(tmp_path, execution(display(text__plain="   a\n0  1", text__html="<table>ü</table>")))
    (path,) = collector.files
    assert Path(path).read_text(encoding="utf-8") == "<table>ü</table>"
    assert collector.text == f"   a\n0  1\nHTML data saved to {path}"


def test_pages_are_utf_8_where_the_platform_has_another_encoding(tmp_path: Path) -> None:
    code = (
        "import locale, pathlib, sys; assert locale.getpreferredencoding(False).lower() != 'utf-8'\n"
        "from jupyter_exec_ext.executors.code_results import OutputDirectory\n"
        "OutputDirectory(pathlib.Path(sys.argv[1]), 'page').text({'text/html': '<p>\\xfc'})"
    )
    env = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=env, check=True)
    assert (tmp_path / "page-1.html").read_bytes() == "<p>ü".encode()


def test_an_objects_bare_repr_is_left_out_beside_html(tmp_path: Path) -> None:
    collector = collect(tmp_path, execution(display(text__plain="<Styler at 0x7f>", text__html="<b>x</b>")))
    assert collector.text == f"HTML data saved to {collector.files[0]}"


def test_a_picture_that_cannot_be_decoded_leaves_its_text(tmp_path: Path) -> None:
    collector = collect(tmp_path, execution(display(image__png="not base64!", text__plain="text")))
    assert (collector.text, collector.files) == ("text", [])


def test_json_and_markdown_are_text(tmp_path: Path) -> None:
    assert collect(tmp_path, execution(display(application__json={"a": [1, "ü"]}))).text == '{"a":[1,"ü"]}'
    assert collect(tmp_path, execution(display(text__markdown="*x*", text__plain="<M>"))).text == "*x*"


def test_output_before_an_error_and_the_error_are_both_there(tmp_path: Path) -> None:
    error = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["line 1", "E: v"]}
    failed = execution(stream("before\n"), error, state=ExecutionState.ERROR)
    assert collect(tmp_path, failed).text == "before\nline 1\nE: v"
    bare = execution({**error, "traceback": []}, state=ExecutionState.ERROR)
    assert collect(tmp_path, bare).text == "E: v"


@pytest.mark.parametrize(("kept", "words"), [(True, "were kept"), (False, "were lost")])
def test_stopped_run_reports_reason_and_state_of_variables(tmp_path: Path, kept: bool, words: str) -> None:
    stopped = execution(
        stream("so far\n"),
        state=ExecutionState.TIMEOUT,
        reason="its time limit of 5 s was reached",
        session_state_preserved=kept,
    )
    text = collect(tmp_path, stopped).text
    assert text == f"so far\nTimeout: its time limit of 5 s was reached; the session's variables {words}"


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        (ExecutionState.REJECTED, "rejected by Ada: no shell", "Not run: rejected by Ada: no shell"),
        (ExecutionState.TOKEN_REVOKED, "the token x was revoked", "Stopped: the token x was revoked"),
    ],
)
def test_rejected_code_reports_reason(tmp_path: Path, state: ExecutionState, reason: str, words: str) -> None:
    refused = execution(state=state, reason=reason, session_state_preserved=True)
    assert collect(tmp_path, refused).text == f"{words}; the session's variables were kept"


def test_lost_output_is_reported(tmp_path: Path) -> None:
    collector = collect(tmp_path, execution(stream("a\n"), truncated=Truncation(1000, upstream=True)))
    assert collector.text.startswith("a\nIncomplete: some output may have been lost")
    assert collect(tmp_path, execution(stream("a\n"), truncated=Truncation(1000))).text == "a\n"


def test_named_files_never_replace_one_another(tmp_path: Path) -> None:
    (tmp_path / "plot-1.png").write_bytes(b"old")
    saver = OutputDirectory(tmp_path, "plot")
    saver.text({"image/png": PNG})
    saver.text({"image/png": PNG})
    assert [Path(path).name for path in saver.files] == ["plot-2.png", "plot-3.png"]
    assert (tmp_path / "plot-1.png").read_bytes() == b"old"


def test_full_disk_loses_only_the_picture(tmp_path: Path) -> None:
    """In a process of its own, whose files may have ten bytes."""
    program = (
        "import json, pathlib, resource, signal, sys\n"
        "from jupyter_exec_ext.executors.code_results import OutputDirectory\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "saver = OutputDirectory(pathlib.Path(sys.argv[1]))\n"
        "print(saver.text(json.loads(sys.argv[2])), saver.files)"
    )
    for data, kind in (({"image/png": PNG}, "image/png"), ({"text/html": "<p>long enough</p>"}, "text/html")):
        ran = subprocess.run(
            [sys.executable, "-c", program, tmp_path, json.dumps(data)], capture_output=True, text=True
        )
        assert f"[{kind}, " in ran.stdout and "could not be saved: File too large]'] []" in ran.stdout, ran.stderr
    assert list(tmp_path.iterdir()) == []


def remove(path: Path) -> None:
    path.rmdir()


def make_a_file_of(path: Path) -> None:
    path.rmdir()
    path.write_text("")


def make_a_broken_link_of(path: Path) -> None:
    path.rmdir()
    path.symlink_to(path / "nowhere")


def make_a_device_of(path: Path) -> None:
    path.rmdir()
    path.symlink_to("/dev/full")


@pytest.mark.parametrize("spoil", [remove, make_a_file_of, make_a_broken_link_of, make_a_device_of])
def test_missing_output_dir_loses_only_pictures(tmp_path: Path, spoil: Any) -> None:
    directory = tmp_path / "out"
    directory.mkdir()
    collector = ResultCollector(directory)
    spoil(directory)
    collector.add(execution(stream("paid\n"), display(image__png=PNG), display(text__html="<p>"), stream("done\n")))
    first, picture, page, last = collector.text.splitlines()
    assert (first, last, collector.files) == ("paid", "done", [])
    assert "image/png" in picture and "could not be saved" in picture
    assert "text/html" in page and "could not be saved" in page
