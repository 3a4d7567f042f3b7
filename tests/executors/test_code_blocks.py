from __future__ import annotations

import pytest

from jupyter_exec_ext.executors import CodeBlock, CodeResult, IPythonCodeResult, MarkdownCodeExtractor


def test_results_print_as_autogens_do() -> None:
    assert str(IPythonCodeResult(0, "a\n")) == "exit_code=0 output='a\\n' output_files=[]"
    assert repr(CodeResult(1, "x")) == "CodeResult(exit_code=1, output='x')"
    assert str(CodeBlock(code="1", language="python")) == "code='1' language='python'"


MESSAGE = """Sure:
```python
x = 3
```
and
  ```bash title="x"
echo `date`
  ```
~~~
```
nested
~~~
````markdown
```python
inner
```
````
"""


@pytest.mark.parametrize(
    ("message", "blocks"),
    [
        (None, []),
        ("no code", []),
        ("```python\nunclosed", []),
        ("inline ```x``` code", []),
        ("```Python\nprint(1)\n```", [("python", "print(1)\n")]),
        ("```\r\nprint(1)\r\n```\r\n", [("", "print(1)\r\n")]),
        ("```python\n```", [("python", "")]),
        (
            MESSAGE,
            [
                ("python", "x = 3\n"),
                ("bash", "echo `date`\n"),
                ("", "```\nnested\n"),
                ("markdown", "```python\ninner\n```\n"),
            ],
        ),
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
    assert MarkdownCodeExtractor().extract_code_blocks(parts) == [CodeBlock("1\n", "python")]
