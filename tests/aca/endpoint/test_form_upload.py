"""Forms with files: every way in which they can be cut, and those that are none."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.filepost import encode_multipart_formdata

from jupyter_exec_ext.aca.endpoint.form_upload import MultipartReader, PartEnd, PartStart, boundary_of
from jupyter_exec_ext.errors import InvalidRequest

Parts = list[tuple[str, str | None, bytes]]


def read(body: bytes, boundary: bytes | None, cuts: list[int] | None = None) -> Parts:
    """Return what a reader makes of a body that comes in pieces."""
    reader = MultipartReader(boundary)
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts or []), len(body)]
    parts: Parts = []
    open_ = False
    for start, end in itertools.pairwise(places):
        for event in reader.feed(body[start:end]):
            if isinstance(event, PartStart):
                assert not open_
                parts.append((event.name, event.filename, b""))
                open_ = True
            elif isinstance(event, PartEnd):
                assert open_
                open_ = False
            else:
                name, filename, content = parts[-1]
                assert event
                parts[-1] = (name, filename, content + event)
    reader.close()
    assert not open_
    return parts


content = st.binary(max_size=200) | st.sampled_from([b"", b"\r\n", b"\r\n--", b"\r\n--b", b"--b--\r\n", b"\r", b"\n"])


@given(st.lists(content, min_size=1, max_size=4), st.lists(st.integers(0, 5000), max_size=12), st.booleans())
def test_form_in_any_chunks_gives_the_sent_parts(contents: list[bytes], cuts: list[int], marked: bool) -> None:
    boundary = "b-x9f3"
    fields = [("file", (f"é {at}.txt", data)) for at, data in enumerate(contents)]
    body, _ = encode_multipart_formdata(fields, boundary)
    if any(f"\r\n--{boundary}".encode() in data for data in contents):
        return
    expected: Parts = [("file", f"é {at}.txt", data) for at, data in enumerate(contents)]
    assert read(body, boundary.encode() if marked else None, cuts) == expected


@pytest.mark.parametrize(
    ("header", "filename"),
    [
        ('form-data; name="file"; filename="a.txt"', "a.txt"),
        ("form-data;name=file;filename=a.txt", "a.txt"),
        ('form-data; filename="a;b.txt"; name="file"', "a;b.txt"),
        (r'form-data; name="file"; filename="a\"b\\c"', 'a"b\\c'),
        ('form-data; name="file"; filename="x"; filename*=utf-8\'\'%C3%A9.txt', "é.txt"),
        ('form-data; name="file"', None),
    ],
)
@pytest.mark.parametrize("name", ["Content-Disposition", "content-disposition"])
def test_file_name_is_read_in_every_client_form(name: str, header: str, filename: str | None) -> None:
    body = f"--b\r\nContent-Type: text/plain\r\n{name}: {header}\r\n\r\nx\r\n--b--\r\n".encode()
    assert read(body, b"b") == [("file", filename, b"x")]


DISPOSITION = b'Content-Disposition: form-data; name="file"; filename="a"'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"--b\r\n",
        b"--b\r\n" + DISPOSITION,
        b"--b\r\n" + DISPOSITION + b"\r\n\r\nx",
        b"--b\r\n" + DISPOSITION + b"\r\n\r\nx\r\n--b",
        b"--b\r\n" + DISPOSITION + b"\r\n\r\nx\r\n--b-",
        b"--b\r\n" + DISPOSITION + b"\r\n\r\nx\n--b--",
        b"--b\r\n\r\nx\r\n--b--",
        b"--b\r\nX: y\r\n\r\nx\r\n--b--",
        b"--b\r\n" + DISPOSITION + b'; name="other"\r\n\r\nx\r\n--b--',
        b"--b\r\nContent-Disposition: form-data; name=\xff\r\n\r\nx\r\n--b--",
        b"--b\r\nContent-Disposition: form-data; filename*=latin-1''a\r\n\r\nx\r\n--b--",
        b"--b\r\nContent-Disposition: form-data; filename*=utf-8''%ff\r\n\r\nx\r\n--b--",
        b"--b\r\n" + DISPOSITION + b"\r\nX: " + b"y" * 20_000 + b"\r\n\r\nx\r\n--b--",
        b"--b\r\n" + b"y" * 20_000,
        b"y" * 2000 + b"\r\n--b\r\n" + DISPOSITION + b"\r\n\r\nx\r\n--b--",
        (b"--b\r\n" + DISPOSITION + b"\r\n\r\nx\r\n") * 101 + b"--b--",
    ],
)
@pytest.mark.parametrize("marked", [True, False])
def test_invalid_or_oversized_form_is_refused(body: bytes, marked: bool) -> None:
    with pytest.raises(InvalidRequest):
        read(body, b"b" if marked else None)


def test_form_with_another_boundary_than_its_header_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        read(b"--b\r\n" + DISPOSITION + b"\r\n\r\nx\r\n--b--", b"c")


def test_bytes_after_the_last_boundary_are_ignored() -> None:
    body = b"--b\r\n" + DISPOSITION + b"\r\n\r\nx\r\n--b--\r\n--b\r\nnothing"
    assert read(body, b"b") == [("file", "a", b"x")]
    assert read(body, b"b", list(range(len(body)))) == [("file", "a", b"x")]


def test_reader_buffers_less_than_a_boundary_of_content() -> None:
    reader = MultipartReader(b"b")
    list(reader.feed(b"--b\r\n" + DISPOSITION + b"\r\n\r\n"))
    got = [event for _ in range(100) for event in reader.feed(b"x" * 10_000)]
    assert sum(len(event) for event in got if isinstance(event, bytes)) > 100 * 10_000 - 100
    assert len(reader._buffer) < 100


@pytest.mark.parametrize(
    ("header", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; charset=utf-8; boundary="a b"', b"a b"),
        ("application/json", None),
        ("", None),
    ],
)
def test_boundary_is_read_from_the_content_type(header: str, boundary: bytes | None) -> None:
    assert boundary_of(header) == boundary


@pytest.mark.parametrize("parameter", ["", "; boundary=", '; boundary="\xe9 "', f"; boundary={'b' * 201}"])
def test_content_type_without_valid_boundary_is_refused(parameter: str) -> None:
    with pytest.raises(InvalidRequest):
        boundary_of(f"multipart/form-data{parameter}")
