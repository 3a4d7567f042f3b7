"""URIs of resources: there and back, and what is none of ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.mcp.resource_uris import file_uri, output_uri, parse_uri


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100))
def test_path_of_a_file_is_the_same_after_its_uri(path: str) -> None:
    uri = file_uri("ses_1", path)
    assert uri.isascii() and parse_uri(uri) == ("files", "ses_1", path)


def test_path_that_is_no_utf8_on_the_disk_is_the_same_after_its_uri() -> None:
    path = b"a\xff".decode("utf-8", "surrogateescape")
    assert parse_uri(file_uri("ses_1", path)) == ("files", "ses_1", path)


def test_name_of_an_output_is_the_same_after_its_uri() -> None:
    assert parse_uri(output_uri("exe_1", "display-1.png")) == ("outputs", "exe_1", "display-1.png")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "file:///etc/passwd",
        "exec://session/ses_1/files/",
        "exec://session/ses_1/outputs/x",
        "exec://execution/exe_1/files/x",
        "exec://session/../files/x",
        "exec://session/a/b/files/x",
        f"exec://session/{'a' * 65}/files/x",
        f"exec://session/ses_1/files/{'a' * 4097}",
        " exec://session/ses_1/files/x",
    ],
)
def test_other_uri_is_none_of_ours(uri: str) -> None:
    assert parse_uri(uri) is None
