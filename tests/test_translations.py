"""Translations of the front end: complete, with all placeholders, and as the tool makes them."""

from __future__ import annotations

import json

from babel.messages.catalog import Catalog

from tools.make_translations import DOMAIN, LOCALES, extract_texts, json_of, problems_of, read_catalog

DIRECTORIES = sorted(LOCALES.glob("*/LC_MESSAGES"))


def test_every_text_is_translated_in_each_language_and_its_files_are_up_to_date() -> None:
    texts = extract_texts()
    assert len(texts) > 200
    assert {"de_DE", "fr_FR"} <= {directory.parent.name for directory in DIRECTORIES}
    assert [problem for each in DIRECTORIES for problem in problems_of(each, read_catalog(each, texts))] == []


def changed(text: str, translation: str | tuple[str, ...]) -> list[str]:
    """Return the problems of German with another translation of one text."""
    (directory,) = (each for each in DIRECTORIES if each.parent.name == "de_DE")
    catalog = read_catalog(directory, extract_texts())
    message = catalog.get(text)
    assert message is not None
    message.string = translation
    return [problem for problem in problems_of(directory, catalog) if "up to date" not in problem]


def test_lost_and_invented_placeholders_are_found() -> None:
    assert changed("Interrupt %1", "%1 unterbrechen") == []
    assert len(changed("Interrupt %1", "unterbrechen")) == 1
    assert len(changed("Interrupt %1", "%1 %2 unterbrechen")) == 1
    assert len(changed("one is busy", ("eine ist beschäftigt", "viele sind beschäftigt"))) == 1
    assert changed("one is busy", ("%1 ist beschäftigt", "%1 sind beschäftigt")) == []


def test_text_without_a_translation_is_found_and_left_in_english() -> None:
    assert len(changed("Interrupt %1", "")) == 1
    catalog = Catalog(locale="de_DE")
    catalog.add("Interrupt %1", "")
    catalog.add(("one", "%1"), ("eins", "%1"), context="numbers")
    entries = json.loads(json_of(catalog))
    assert entries.pop("")["domain"] == DOMAIN
    assert entries == {"numbers\x04one": ["eins", "%1"]}
