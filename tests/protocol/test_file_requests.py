from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.errors import InvalidRequest
from jupyter_exec_ext.protocol.file_requests import (
    TEMPORARY_PREFIX,
    content_disposition,
    digest_header,
    is_addressable,
    mime_type,
    path_parts,
    quoted_path,
    sha256_in,
    wants_sha256,
)

GOOD = [
    "a",
    "a/b",
    "...",
    "..a",
    "a..",
    ".hidden",
    "a b",
    "ü/日本.txt",
    "a\\b",
    "a\r\nb",
    "x" * 255,
    "%2e%2e",
    "~",
    "-rf",
]
BAD = {
    "": "empty",
    "/": "relative",
    "/etc/passwd": "relative",
    "a//b": "empty part",
    "a/": "empty part",
    ".": "'.' or '..'",
    "..": "'.' or '..'",
    "a/../b": "'.' or '..'",
    "../x": "'.' or '..'",
    "a/./b": "'.' or '..'",
    "a\0b": "NUL",
    "x" * 256: "255 bytes",
    "ü" * 128: "255 bytes",
    "/".join("a" * 100): "64 parts",
    "/".join(["x" * 200] * 30): "4000 bytes",
    "\udcff": "UTF-8",
    f"a/{TEMPORARY_PREFIX}1": "server's own",
}


@pytest.mark.parametrize("path", GOOD)
def test_a_good_path_is_taken_as_it_is(path: str) -> None:
    assert "/".join(path_parts(path)) == path
    assert unquote(quoted_path(path)) == path


@pytest.mark.parametrize(("path", "words"), BAD.items())
def test_a_bad_path_is_refused_with_the_reason(path: str, words: str) -> None:
    assert not is_addressable(path)
    with pytest.raises(InvalidRequest, match=words):
        path_parts(path)


@given(st.text())
def test_whatever_is_taken_stays_below(path: str) -> None:
    if is_addressable(path):
        assert all(part not in ("", ".", "..") and "/" not in part and "\0" not in part for part in path_parts(path))


@given(st.text(min_size=1).filter(is_addressable))
def test_a_download_header_is_one_line_of_ascii_that_holds_the_name(path: str) -> None:
    header = content_disposition(path)
    assert header.isascii() and header.isprintable()
    kind, fallback, extended = header.split("; ", 1)[0], header, header.partition("filename*=UTF-8''")[2]
    assert kind == "attachment"
    assert unquote(extended, errors="strict") == path.rpartition("/")[2]
    assert fallback.count('"') == 2
    assert "\\" not in fallback


def test_a_header_by_example() -> None:
    assert content_disposition('a/na\u00efve "plan".txt') == (
        "attachment; filename=\"na_ve _plan_.txt\"; filename*=UTF-8''na%C3%AFve%20%22plan%22.txt"
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.csv", "text/csv"),
        ("x/y.PNG", "image/png"),
        ("a.tar.gz", "application/gzip"),
        ("n.ipynb", "application/x-ipynb+json"),
        ("none", "application/octet-stream"),
        ("data:text/html,x", "application/octet-stream"),
        (".html", "text/html"),
        ("http://x/a.json", "application/json"),
    ],
)
def test_the_kind_is_what_the_name_says(name: str, kind: str) -> None:
    assert mime_type(name) == kind


def test_digests_survive_the_header() -> None:
    sha = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert sha256_in(digest_header(sha)) == sha
    assert sha256_in(f"md5=:AAAA:, {digest_header(sha)}") == sha
    assert sha256_in("") is None
    assert sha256_in("sha-256=:short:") is None
    assert wants_sha256("sha-256=10") and wants_sha256("sha-512=3, sha-256=1")
    assert not wants_sha256("sha-256=0") and not wants_sha256("") and not wants_sha256("sha-512=1")
