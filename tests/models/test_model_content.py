"""What a language model gets of an execution."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from jupyter_exec_ext.models import Execution, ExecutionState, FileInfo, ImageContent, TextContent, Truncation
from jupyter_exec_ext.models.model_content import shortened

PNG = b"\x89PNG picture"


def execution(*outputs: dict[str, Any], state: ExecutionState = ExecutionState.OK, **fields: Any) -> Execution:
    return Execution(id="e", session_id="s", state=state, code="", created_at="t", outputs=outputs, **fields)


def stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def picture(mime: str = "image/png", content: bytes = PNG) -> dict[str, Any]:
    data = {mime: base64.b64encode(content).decode(), "text/plain": "<Figure size 640x480 with 1 Axes>"}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def test_pictures_are_data_at_their_places() -> None:
    ran = execution(stream("before\n"), picture(), stream("after\n"), picture("image/jpeg", b"jpeg"))
    assert ran.to_content() == [
        TextContent("before\n"),
        ImageContent("image/png", PNG),
        TextContent("after\n"),
        ImageContent("image/jpeg", b"jpeg"),
    ]
    assert ran.to_text() == "before\n[image/png, 12 bytes, not shown]\nafter\n[image/jpeg, 4 bytes, not shown]"


def test_pictures_beyond_the_limit_are_named() -> None:
    assert execution(picture(), picture()).to_content(max_images=1) == [
        ImageContent("image/png", PNG),
        TextContent("[image/png, 12 bytes, not shown]"),
    ]


def test_a_picture_that_is_too_large_is_named_and_leaves_room_for_others() -> None:
    ran = execution(picture(content=PNG + b"!"), picture())
    said = TextContent("[image/png, 13 bytes, not shown]")
    assert ran.to_content(max_images=1, max_image_bytes=len(PNG)) == [said, ImageContent("image/png", PNG)]
    assert execution(picture(content=bytes(5_000_001))).to_content() == [
        TextContent("[image/png, 5,000,001 bytes, not shown]")
    ]
    assert execution(picture(content=bytes(5_000_000))).to_content()[0] == ImageContent("image/png", bytes(5_000_000))


def test_pictures_are_paths_where_they_can_be_saved() -> None:
    saved: dict[str, bytes] = {}

    def save(mime_type: str, content: bytes) -> str:
        saved[mime_type] = content
        return f"/out/{len(saved)}"

    ran = execution(picture(), picture("application/pdf", b"%PDF"))
    text = "Image data saved to /out/1\nPDF data saved to /out/2"
    assert ran.to_content(save=save) == [TextContent(text)]
    assert ran.to_text(save=save) == text.replace("out/1", "out/2")
    assert saved == {"image/png": PNG, "application/pdf": b"%PDF"}


def test_what_models_do_not_see_is_named() -> None:
    assert execution(picture("application/pdf", b"%PDF")).to_text() == "[application/pdf, 4 bytes, not shown]"


def test_html_is_text_where_there_is_no_other() -> None:
    def shown(plain: str) -> str:
        data = {"text/html": "<b>x</b>", "text/plain": plain}
        return execution({"output_type": "execute_result", "data": data, "metadata": {}}).to_text()

    assert shown("<IPython.core.display.HTML object>") == "<b>x</b>"
    assert shown("   a\n0  1") == "   a\n0  1"


@pytest.mark.parametrize("letter", ["a", "ü", "😀"])
def test_long_text_keeps_its_head_and_tail(letter: str) -> None:
    text = execution(stream(f"HEAD{letter * 100_000}TAIL")).to_text(max_bytes=1000)
    assert text.startswith(f"HEAD{letter}")
    assert text.endswith(f"{letter}TAIL")
    left_out = 100_000 * len(letter.encode()) + 8 - 1000
    assert any(f"[... {left_out + lost:,} bytes left out ...]" in text for lost in range(8))
    assert len(text.encode()) <= 1000 + 50


def test_all_texts_together_keep_to_the_limit() -> None:
    content = execution(stream("a" * 50_000), picture(), stream("b" * 50_000)).to_content(max_text_bytes=1000)
    first, image, last = content
    assert isinstance(first, TextContent) and isinstance(last, TextContent)
    assert isinstance(image, ImageContent)
    assert len(first.text) + len(last.text) <= 1100
    assert last.text.endswith("b" * 200)


def test_an_error_is_short() -> None:
    traceback = ["frame\n" * 10_000, "ValueError: no"]
    error = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": traceback}
    text = execution(stream("before\n"), error, state=ExecutionState.ERROR).to_text()
    assert text.startswith("before\nframe\n")
    assert text.endswith("ValueError: no")
    assert len(text) < 4200


def test_files_and_what_was_left_out_are_told() -> None:
    files = [FileInfo(f"{number}.csv", 1234, "t", "text/csv") for number in range(60)]
    text = execution(files=files, files_omitted=5, truncated=Truncation(1000, stdout_bytes=99_000)).to_text()
    assert text.startswith(
        "Left out: 99,000 bytes beyond the output limit of 1,000\nFiles written: 0.csv (1,234 bytes), "
    )
    assert text.endswith("49.csv (1,234 bytes) and 15 more")


def test_a_run_without_output_says_so() -> None:
    assert execution().to_text() == "(no output)"
    assert execution().to_content() == [TextContent("(no output)")]


def test_a_stopped_run_says_why() -> None:
    stopped = execution(
        state=ExecutionState.TIMEOUT, reason="its limit of 5 s was reached", session_state_preserved=True
    )
    assert stopped.to_text() == "Timeout: its limit of 5 s was reached; the session's variables were kept"


def test_a_picture_is_a_url_and_no_text_of_its_own() -> None:
    image = ImageContent("image/png", PNG)
    assert image.data_url == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert repr(image) == "ImageContent('image/png', 12 bytes)"


def test_text_that_fits_is_as_it_was() -> None:
    assert shortened("ü" * 500, 1000) == "ü" * 500
