"""The query of a request: no two identifiers are ever taken for one another, however they are written."""

from __future__ import annotations

import itertools
import string
from urllib.parse import quote

import pytest

from jupyter_exec_ext.aca.protocol.addresses import (
    Family,
    api_version_of,
    family_asked,
    flag_of,
    identifier_of,
    query_from_text,
    skip_of,
)
from jupyter_exec_ext.errors import InvalidRequest

LEGAL = string.ascii_letters + string.digits + "_|{}[]:\";'<>?/.,@#$%^&*()-+=!~`"
ILLEGAL = [chr(code) for code in range(0x21)] + ["\\", "\x7f", "\x80", "\xa0", "\xe9", "\u0130", "\u212a", "\u2024"]
ILLEGAL += ["\uff21", "\uff0f", "\u0391", "\u0410", "\u200b", "\u202e", "\ufeff", "\U0001f600", "\U000e0041"]


def read(query: str) -> str:
    return identifier_of(query_from_text(query))


@pytest.mark.parametrize("character", LEGAL)
def test_every_legal_character_is_taken_as_it_is(character: str) -> None:
    identifier = f"abc{character}"
    assert read(f"identifier={quote(identifier, safe='')}&api-version=x") == identifier
    assert read(f"api-version=x&identifier={quote(identifier, safe='')}") == identifier


def test_identifiers_that_differ_in_one_character_stay_different() -> None:
    read_as = {read(f"identifier={quote(f'ab{a}{b}', safe='')}") for a, b in itertools.product(LEGAL, LEGAL)}
    assert len(read_as) == len(LEGAL) ** 2


@pytest.mark.parametrize("character", ILLEGAL)
def test_every_other_character_is_refused(character: str) -> None:
    assert len(ILLEGAL) >= 50
    for identifier in (f"abcd{character}", f"{character}abcd", f"ab{character}cd"):
        with pytest.raises(InvalidRequest):
            read(f"identifier={quote(identifier, safe='')}")


@pytest.mark.parametrize(
    "query",
    [
        *("", "identifier", "identifier=", "identifier=abc", f"identifier={'a' * 129}", "Identifier=abcd"),
        *("identifier=abcd&identifier=abcd", "identifier=abcd&identifie%72=efgh", "identifier=abcd&x=1&x=1"),
        *("identifier=abcd%", "identifier=abcd%4", "identifier=abcd%zz", "identifier=abcd%ff", "identifier=ab+cd"),
        *("identifier=abc\xe9", "identifier=abcd%C0%AF", "identifier=abcd%ED%A0%80"),
    ],
)
def test_what_is_no_identifier_or_could_be_two_is_refused(query: str) -> None:
    with pytest.raises(InvalidRequest):
        read(query)


def test_lengths_are_those_of_the_specification() -> None:
    for length in (4, 128):
        assert len(read(f"identifier={'a' * length}")) == length


def test_a_version_chooses_the_family() -> None:
    assert family_asked({"api-version": "2024-02-02-preview"}) is Family.ENVELOPE
    assert family_asked({"api-version": "2024-10-02-preview"}) is Family.FLAT
    for fields in ({"api-version": "2024-09-01"}, {}):
        with pytest.raises(InvalidRequest, match="api-version"):
            api_version_of(fields)


def test_flags_and_numbers_are_read_strictly() -> None:
    assert (flag_of({}, "a"), flag_of({"a": "True"}, "a"), flag_of({"a": "false"}, "a")) == (False, True, False)
    assert (skip_of({}), skip_of({"skip": "300"})) == (0, 300)
    for text in ("", "-1", "1.0", "٣", "1" * 10):
        with pytest.raises(InvalidRequest, match="'skip' must be a whole number with at most 9 digits"):
            skip_of({"skip": text})
    with pytest.raises(InvalidRequest):
        flag_of({"a": "1"}, "a")
