"""One displayed value as text, picture or file."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.executors.code_results import OutputDirectory
from jupyter_exec_ext.models import ImageContent
from jupyter_exec_ext.models.mime_bundles import display_name, extension, normalized_bundle, pieces_of_bundle

PNG = base64.b64encode(b"\x89PNG picture").decode()
POINT = {"type": "Point", "coordinates": [1, 2]}
# A bundle; the name and extension of its file where it can be saved, and what is in it; the text where it cannot.
SAVED: list[tuple[dict[str, Any], str, str, bytes, str]] = [
    ({"audio/wav": "UklGRg=="}, "Audio", "wav", b"RIFF", "[audio/wav, 4 bytes, not shown]"),
    ({"audio/mpeg": "AAAA"}, "Audio", "mp3", bytes(3), "[audio/mpeg, 3 bytes, not shown]"),
    ({"video/mp4": "AAAA"}, "Video", "mp4", bytes(3), "[video/mp4, 3 bytes, not shown]"),
    ({"image/tiff": "AAAA"}, "Image", "tif", bytes(3), "[image/tiff, 3 bytes, not shown]"),
    ({"application/pdf": "JVBERg=="}, "PDF", "pdf", b"%PDF", "[application/pdf, 4 bytes, not shown]"),
    ({"application/pdf": "%PDF, raw"}, "PDF", "pdf", b"%PDF, raw", "[application/pdf, 9 bytes, not shown]"),
    ({"text/csv": "a,b\n1,2"}, "CSV", "csv", b"a,b\n1,2", "a,b\n1,2"),
    ({"text/csv": ["a,b\n", "ü,2"]}, "CSV", "csv", "a,b\nü,2".encode(), "a,b\nü,2"),
    ({"text/vnd.mermaid": "graph TD"}, "text/vnd.mermaid", "txt", b"graph TD", "graph TD"),
    ({"application/geo+json": POINT}, "GeoJSON", "json", json.dumps(POINT, separators=(",", ":")).encode(), '{"type"'),
    ({"application/vnd.vegalite.v5+json": {"mark": "bar"}}, "Vega-Lite", "json", b'{"mark":"bar"}', '{"mark":"bar"}'),
    ({"application/vnd.vega.v5+json": {"marks": []}}, "Vega", "json", b'{"marks":[]}', '{"marks":[]}'),
    ({"application/vnd.plotly.v1+json": {"data": ["é"]}}, "Plotly", "json", b'{"data":["\\u00e9"]}', '{"data":["é"]}'),
    ({"application/vnd.plotly.v1+json": '{"data":[]}'}, "Plotly", "json", b'{"data":[]}', '{"data":[]}'),
    ({"application/x-thing": "data"}, "application/x-thing", "bin", b"data", "[application/x-thing, 4 bytes, not"),
    ({"application/x-thing": {"a": 1}}, "application/x-thing", "bin", b'{"a":1}', "[application/x-thing, 7 bytes, not"),
    ({"application/zip": "UEs="}, "application/zip", "zip", b"PK", "[application/zip, 2 bytes, not shown]"),
    ({"application/javascript": "f()"}, "application/javascript", "js", b"f()", "[application/javascript, 3 bytes, n"),
    ({"model/gltf+json": {"asset": 1}}, "model/gltf+json", "json", b'{"asset":1}', '{"asset":1}'),
    ({"application/rss+xml": "<rss/>"}, "application/rss+xml", "xml", b"<rss/>", "[application/rss+xml, 6 bytes, not"),
]


@pytest.mark.parametrize("plain", [None, "<some.Thing object at 0x1>"])
@pytest.mark.parametrize(("data", "name", "ending", "content", "text"), SAVED)
def test_every_type_is_saved_or_named(
    tmp_path: Path, data: dict[str, Any], name: str, ending: str, content: bytes, text: str, plain: str | None
) -> None:
    bundle = data if plain is None or "javascript" in str(data) else {"text/plain": plain, **data}
    saver = OutputDirectory(tmp_path)
    (line,) = saver.text(bundle)
    (path,) = saver.files
    assert line == f"{name} data saved to {path}"
    assert (Path(path).suffix, Path(path).read_bytes()) == (f".{ending}", content)
    (piece,) = pieces_of_bundle(bundle, None)
    assert isinstance(piece, str) and piece.startswith(text)


def test_short_json_is_text_and_long_json_is_a_file(tmp_path: Path) -> None:
    saver = OutputDirectory(tmp_path)
    short = {"application/json": {"answer": 42}, "text/plain": "<IPython.core.display.JSON object>"}
    assert saver.text(short) == ['{"answer":42}'] == list(pieces_of_bundle(short, None))
    long = {"application/json": ["x" * 4001]}
    assert saver.text(long) == [f"JSON data saved to {saver.files[0]}"]
    assert json.loads(Path(saver.files[0]).read_bytes()) == ["x" * 4001]
    assert list(pieces_of_bundle(long, None)) == ["[application/json, 4,005 bytes, not shown]"]


def test_a_plots_data_is_saved_beside_its_picture_and_its_text(tmp_path: Path) -> None:
    plot: dict[str, Any] = {"application/vnd.plotly.v1+json": {"data": []}}
    saver = OutputDirectory(tmp_path)
    lines = saver.text({**plot, "image/png": PNG, "text/html": "<p>"})
    assert lines == [f"Image data saved to {saver.files[0]}", f"Plotly data saved to {saver.files[1]}"]
    assert saver.text({**plot, "text/plain": "Figure({...})"})[0] == "Figure({...})"
    assert list(pieces_of_bundle({**plot, "text/plain": "Figure()"}, None)) == [
        "Figure()",
        "[application/vnd.plotly.v1+json, 11 bytes, not shown]",
    ]
    picture, line = pieces_of_bundle({**plot, "image/png": PNG}, None)
    assert (picture, line) == (
        ImageContent("image/png", b"\x89PNG picture"),
        "[application/vnd.plotly.v1+json, 11 bytes, not shown]",
    )


@pytest.mark.parametrize(
    "data",
    [
        {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "IntSlider(value=0)"},
        {"application/vnd.bokehjs_exec.v0+json": "", "text/plain": "IntSlider(value=0)"},
        {"application/javascript": "f()", "text/plain": "IntSlider(value=0)"},
    ],
)
def test_what_only_browsers_use_makes_no_file_where_there_is_text(tmp_path: Path, data: dict[str, Any]) -> None:
    saver = OutputDirectory(tmp_path)
    assert (saver.text(data), saver.files) == (["IntSlider(value=0)"], [])


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ({"text/plain": ["a\n", "b"]}, "a\nb"),
        ({"text/markdown": ["# a\n", "b"]}, "# a\nb"),
        ({"image/png": None, "text/plain": "a picture"}, "a picture"),
        ({"text/html": None, "image/png": None, "text/plain": ["a", "b"]}, "ab"),
        ({"image/png": None}, "[image/png, no data]"),
        ({"audio/wav": None, "x/y\n\x1b": None}, "[audio/wav, bin data, no data]"),
        ({"application/json": ["a\n", "b"]}, '["a\\n","b"]'),
        ({"text/plain": [1, 2]}, "[1, 2]"),
        ({"image/png": "not base64!"}, "[image/png, not shown: it cannot be decoded]"),
        ({"image/png": ""}, "[image/png, not shown: it cannot be decoded]"),
        ({"image/png": 5, "text/plain": "five"}, "five"),
    ],
)
def test_values_that_are_not_as_specified(tmp_path: Path, data: dict[str, Any], shown: str) -> None:
    saver = OutputDirectory(tmp_path)
    assert (saver.text(data), saver.files) == ([shown], [])
    assert list(pieces_of_bundle(data, None)) == [shown]


def test_lines_of_a_picture_are_joined(tmp_path: Path) -> None:
    saver = OutputDirectory(tmp_path)
    saver.text({"image/svg+xml": ["<svg>", "</svg>"]})
    saver.text({"image/png": [PNG[:8], "\n", PNG[8:]]})
    assert [Path(path).read_bytes() for path in saver.files] == [b"<svg></svg>", b"\x89PNG picture"]


def test_a_bundle_that_is_as_specified_stays_the_same_object() -> None:
    data = {"text/plain": "a", "application/json": ["a", None]}
    assert normalized_bundle(data) is data


def test_nothing_shows_nothing() -> None:
    assert list(pieces_of_bundle({}, None)) == []
    assert "".join(map(str, pieces_of_bundle({"text/plain": ""}, None))) == ""


def test_no_bundle_vanishes_whatever_is_in_it(tmp_path: Path) -> None:
    """Random bundles of known, unknown and impossible types and values: each leaves text or a picture."""
    draw = random.Random(29)
    mimes = [
        *("text/plain", "text/html", "text/latex", "application/json", "image/png", "image/svg+xml", "image/x-odd"),
        *("audio/wav", "text/csv", "application/x-thing", "application/vnd.plotly.v1+json", "", "é/\ud800", "a" * 300),
        *("application/vnd.jupyter.widget-view+json", "application/javascript", "../../etc/passwd", "application/zip"),
    ]
    values = [PNG, "text", "<Object at 0x1>", ["a\n", "b"], {"a": [1]}, None, 5, "\ud800", ["\ud800", 1], "é" * 5000]
    for _ in range(2000):
        data = {draw.choice(mimes): draw.choice(values) for _ in range(draw.randint(1, 4))}
        for save in (None, OutputDirectory(tmp_path)):
            pieces = list(pieces_of_bundle(data, save))
            assert any(pieces), data
            assert save is None or all(Path(path).parent == tmp_path for path in save.files)


@pytest.mark.parametrize("mime", ["../../etc/passwd", "image/../x", "a" * 999, "x/y\n\x1b[31m", "é/é", "", "+json/"])
def test_no_type_can_steer_a_name_or_the_text(mime: str) -> None:
    assert extension(mime).isalnum() and len(extension(mime)) < 6
    assert display_name(mime).isprintable() and len(display_name(mime)) <= 80
