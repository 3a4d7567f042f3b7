"""Ids of sessions and executions, and the names of servers in them."""

from __future__ import annotations

import re

import pytest

from jupyter_exec_ext.protocol.record_ids import RecordId, new_id, parse_id, server_slug

DIGITS = "0123456789abcdef01234567"


@pytest.mark.parametrize("name", ["", "w2", "abcdefgh12345678"])
def test_name_of_the_right_form_is_kept(name: str) -> None:
    assert server_slug(name) == name


@pytest.mark.parametrize("name", ["W2", "w-2", "abcdefgh123456789", "日本", "_", "w2\n", "\udcff"])
def test_other_name_gets_a_hash_and_is_a_slug(name: str) -> None:
    slug = server_slug(name)
    assert re.fullmatch("[a-z0-9]{6,16}", slug)
    assert server_slug(slug) == slug == server_slug(name)


def test_names_that_look_alike_as_slugs_stay_different() -> None:
    names = ["w2", "W2", "w-2", "w_2", "a" * 17, "a" * 18]
    assert len({server_slug(name) for name in names}) == len(names)


@pytest.mark.parametrize("kind", ["ses", "exe"])
@pytest.mark.parametrize("name", ["", "w2", "abcdefgh12345678", "0123456789abcdef"])
def test_new_id_has_its_kind_and_its_servers_name(kind: str, name: str) -> None:
    made = new_id(kind, name)
    parsed = parse_id(made)
    assert parsed is not None and parsed[:2] == (kind, name)
    assert made != new_id(kind, name)
    assert re.fullmatch("[A-Za-z0-9_-]{1,64}", made)  # as the route table has it


def test_id_of_earlier_versions_has_no_name() -> None:
    assert parse_id(f"ses_{DIGITS}") == RecordId("ses", "", DIGITS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ses_",
        "ses_unknown",
        f"tok_{DIGITS}",
        f"ses_{DIGITS}0",
        f"ses__{DIGITS}",
        f"ses_W2_{DIGITS}",
        f"ses_w_2_{DIGITS}",
        f"ses_{'a' * 17}_{DIGITS}",
        f"ses_w2_{DIGITS}\n",
        f"ses_w2_{DIGITS.upper()}",
    ],
)
def test_other_text_is_no_id(text: str) -> None:
    assert parse_id(text) is None
