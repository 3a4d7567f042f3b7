"""The rest of what the document shows and promises: its chat, its message, several agents, pictures of every kind."""

from __future__ import annotations

import ast
import base64
from pathlib import Path
from typing import Any

import pytest

import jupyter_exec_ext
from jupyter_exec_ext import EmbeddedIPythonCodeExecutor, JupyterCodeExecutor, LocalJupyterServer
from jupyter_exec_ext.executors.stateful_executor import StatefulCodeExecutor
from tests.executors import seed_chat, seed_examples
from tests.executors.conftest import python


def test_the_blocks_of_the_chat_give_what_the_document_shows(executor: StatefulCodeExecutor) -> None:
    blocks = executor.code_extractor.extract_code_blocks(seed_chat.REPLIES[1])
    assert [block.language for block in blocks] == ["python", "python"]
    result = executor.execute_code_blocks(blocks)
    assert (result.exit_code, result.output) == (0, seed_chat.FIBONACCI_GIVES)


def test_the_recommended_system_message_is_the_documents() -> None:
    """Whole but for blank lines, which the document has lost."""
    message = jupyter_exec_ext.CODE_WRITER_SYSTEM_MESSAGE
    assigned = ast.parse(seed_chat.CODE_WRITER_AGENT).body[0]
    assert isinstance(assigned, ast.Assign)
    documents: str = ast.literal_eval(assigned.value)
    assert [line for line in message.splitlines() if line] == [line for line in documents.splitlines() if line]
    for kind in (JupyterCodeExecutor, EmbeddedIPythonCodeExecutor):
        assert kind.CODE_WRITER_SYSTEM_MESSAGE is message


def test_several_agents_share_a_server_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(seed_examples.SEVERAL_AGENTS, names)
    server: LocalJupyterServer = names["server"]
    one, other = names["executor"], names["another"]
    picture = (
        "x = 1\nfrom IPython.display import SVG, display\ndisplay(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))"
    )
    files = [path for agent in (one, other) for path in agent.execute_code_blocks(python(picture)).output_files]
    assert len(set(files)) == 2 and {Path(path).parent for path in files} == {tmp_path / "coding"}
    one.restart()
    assert one.execute_code_blocks(python("print('x' in globals())")).output == "False\n"
    assert other.execute_code_blocks(python("print(x)")).output == "1\n"
    one.stop()
    assert other.execute_code_blocks(python("print(x + 1)")).output == "2\n"
    exec(seed_examples.STOP, names)
    assert server._subprocess.poll() is not None
    other.stop()


KINDS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/bmp": "bmp",
    "application/pdf": "pdf",
}


def test_pictures_of_every_kind_and_pages_are_saved(executor: StatefulCodeExecutor, tmp_path: Path) -> None:
    shown = {mime: base64.b64encode(f"a {mime}".encode()).decode() for mime in KINDS}
    texts = {"image/svg+xml": "<svg>ü</svg>", "text/html": "<p>ü</p>"}
    code = (
        "from IPython.display import display\n"
        f"for mime, data in { ({**shown, **texts})!r}.items():\n"
        "    display({mime: data, 'text/plain': '<Figure size 640x480>'}, raw=True)"
    )
    result = executor.execute_code_blocks(python(code))
    assert result.exit_code == 0, result.output
    paths = [Path(path) for path in result.output_files]
    assert [path.suffix for path in paths] == [*(f".{extension}" for extension in KINDS.values()), ".svg", ".html"]
    assert [path.read_bytes() for path in paths] == [
        *(f"a {mime}".encode() for mime in KINDS),
        *(text.encode() for text in texts.values()),
    ]
    assert {path.parent for path in paths} == {tmp_path}
    kinds = {".html": "HTML", ".pdf": "PDF"}
    said = [f"{kinds.get(path.suffix, 'Image')} data saved to {path}" for path in paths]
    assert result.output.splitlines() == said
