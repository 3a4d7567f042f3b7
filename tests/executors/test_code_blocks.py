from __future__ import annotations

import pytest

from jupyter_exec_ext.executors import CodeBlock, CodeResult, IPythonCodeResult, MarkdownCodeExtractor
from jupyter_exec_ext.executors.code_blocks import quiet_pip


def test_results_print_as_autogens_do() -> None:
    assert str(IPythonCodeResult(0, "a\n")) == "exit_code=0 output='a\\n' output_files=[]"
    assert repr(CodeResult(1, "x")) == "CodeResult(exit_code=1, output='x')"
    assert str(CodeBlock(code="1", language="python")) == "code='1' language='python'"


# What AutoGen 0.2.35 finds, message by message.
@pytest.mark.parametrize(
    ("message", "blocks"),
    [
        (None, []),
        ("no code", []),
        ("```python\nunclosed", []),
        ("inline ```x``` code", []),
        ("```python\n```", []),
        ("```python\nx\n```", [("python", "x")]),
        ("```Python\r\nx\r\n```\r\n", [("Python", "x")]),
        ("text ```python\nx=1\n``` more", [("python", "x=1")]),
        ("1. foo\n   ```python\n   x=1\n   ```\n", [("python", "   x=1")]),
        ("```py\nx\n```\n```\npip install y\n```", [("py", "x"), ("sh", "pip install y")]),
        ("```\nx = 1\n```\n```\necho hi there\n```", [("python", "x = 1"), ("", "echo hi there")]),
        ("```python\nprint('''\n```\nx\n```\n''')\n```", [("python", "print('''"), ("", "''')")]),
        ("````python\nx\n````", [("python", "x")]),
        ("```c++\nx\n```", []),
        ("```python {.cls}\nx\n```", []),
        ("~~~python\nx\n~~~", []),
    ],
)
def test_code_blocks_are_found(message: str | None, blocks: list[tuple[str, str]]) -> None:
    found = MarkdownCodeExtractor().extract_code_blocks(message)
    assert [(block.language, block.code) for block in found] == blocks


def test_code_blocks_are_found_in_content_parts() -> None:
    parts: list[dict[str, object]] = [
        {"type": "text", "text": "```python\n1\n```"},
        {"type": "image_url", "image_url": {}},
    ]
    assert MarkdownCodeExtractor().extract_code_blocks(parts) == [CodeBlock("1", "python")]


# --- pip ---


@pytest.mark.parametrize(
    ("code", "language", "quiet"),
    [
        ("!pip install x", "python", "!pip install -qq x"),
        ("! pip install x", "python", "! pip install -qq x"),
        ("%pip install x", "python", "%pip install -qq x"),
        ("!pip3 install x", "", "!pip3 install -qq x"),
        ("!python -m pip install x", "python", "!python -m pip install -qq x"),
        ("if True:\n    !pip install x\nprint(1)", "python", "if True:\n    !pip install -qq x\nprint(1)"),
        ("pip install x\npip install y", "bash", "pip install -qq x\npip install -qq y"),
        ("!pip install x", "sh", "!pip install -qq x"),
        ("!pip install x\n'''\n!pip install y\n'''", "python", "!pip install -qq x\n'''\n!pip install y\n'''"),
    ],
)
def test_installs_become_quiet(code: str, language: str, quiet: str) -> None:
    assert quiet_pip(code, language) == quiet


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("!pip install -q x", "python"),
        ("!pip install -v x", "python"),
        ("!pip install x --quiet", "python"),
        ("!pip list", "python"),
        ("print('!pip install x')", "python"),
        ("text = '''\n!pip install x\n'''", "python"),
        ('text = f"""{1}\n!pip install x\n"""', "python"),
        ("'''\n!pip install x", "python"),  # no Python at all
        ("!pip install x", "julia"),
        ("!pip installed", "python"),
        ("echo pip install x", "bash"),
    ],
)
def test_other_code_stays_as_it_is(code: str, language: str) -> None:
    assert quiet_pip(code, language) == code
