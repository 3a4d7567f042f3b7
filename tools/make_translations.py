"""Extract the front end's texts, and make the files with which JupyterLab translates them.

python -m tools.make_translations [--check]

It reads labextension/src and the schema of the settings. In each language's ``.po`` file, new texts appear without a
translation and old ones leave; translations stay. JupyterLab reads the ``.json`` file beside it. The command lists what
is wrong, and exits with 1 if that is anything. With ``--check``, it writes nothing.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po, write_po

from jupyter_exec_ext import __version__

ROOT = Path(__file__).parent.parent
DOMAIN = "jupyter_exec_ext"
LOCALES = ROOT / DOMAIN / "locale"
FRONT_END = ROOT / "labextension"

_LITERAL = r"""(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""
_CALL = re.compile(r"\.(__|_n|_p|_np)\(\s*")
_LITERALS = re.compile(rf"{_LITERAL}(?:\s*,\s*{_LITERAL})*")
_TEXTS = {"__": 1, "_p": 2, "_n": 2, "_np": 3}  # how many arguments of each function are texts
_PLACEHOLDER = re.compile(r"%\d+")
_CONTEXT_DELIMITER = "\x04"
_HEADER = """\
# The texts of jupyter_exec_ext in JupyterLab; tools/make_translations.py keeps this file up to date.
msgid ""
msgstr ""
"Language: {language}\\n"
"Plural-Forms: {plural_forms}\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"

"""


def extract_texts() -> Catalog:
    """Return all texts of the front end, each with the files that have it.

    Raises
    ------
    ValueError
        If the text of a call is no literal, or if a text is used both with and without a plural.
    """
    catalog = Catalog()
    first_uses: dict[tuple[str | None, str], str | tuple[str, str]] = {}
    for where, context, text in [*_texts_of_sources(), *_texts_of_schema()]:
        first = text[0] if isinstance(text, tuple) else text
        if first_uses.setdefault((context, first), text) != text:
            raise ValueError(f"{where}: {first!r} is used with and without a plural; gettext can hold one of them")
        catalog.add(text, locations=[(where, 0)], context=context)
    return catalog


def _texts_of_sources() -> Iterator[tuple[str, str | None, str | tuple[str, str]]]:
    for path in sorted((FRONT_END / "src").rglob("*.ts*")):
        source = path.read_text(encoding="utf-8")
        where = path.relative_to(ROOT).as_posix()
        for call in _CALL.finditer(source):
            found = _LITERALS.match(source, call.end())
            wanted = _TEXTS[call[1]]
            texts = [str(ast.literal_eval(each)) for each in re.findall(_LITERAL, found[0])] if found else []
            if len(texts) < wanted:
                line = source.count("\n", 0, call.start()) + 1
                raise ValueError(f"{where}:{line}: {call[1]}() needs {wanted} literal text(s) first")
            context = texts.pop(0) if call[1] in ("_p", "_np") else None
            yield where, context, (texts[0], texts[1]) if call[1] in ("_n", "_np") else texts[0]


def _texts_of_schema() -> Iterator[tuple[str, str, str]]:
    """Yield the texts of the settings, with the contexts that jupyterlab_server gives them."""
    for path in sorted((FRONT_END / "schema").glob("*.json")):
        schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        where = path.relative_to(ROOT).as_posix()
        for key in ("title", "description"):
            yield where, "schema", schema[key]
            for setting in schema["properties"].values():
                yield where, "settings", setting[key]
                if key == "title":
                    yield from ((where, "settings", choice[key]) for choice in setting.get("oneOf", ()))
        yield where, "settings", schema["jupyter.lab.setting-icon-label"]


def read_catalog(directory: Path, texts: Catalog) -> Catalog:
    """Return a language's translations of these texts."""
    with (directory / f"{DOMAIN}.po").open("rb") as file:
        catalog = read_po(file, locale=directory.parent.name)
    catalog.update(texts, no_fuzzy_matching=True)
    catalog.obsolete.clear()
    return catalog


def po_of(catalog: Catalog) -> str:
    """Return the text of the ``.po`` file, which has no dates: the same texts make the same file."""
    body = io.BytesIO()
    write_po(body, catalog, width=110, omit_header=True, sort_output=True, include_lineno=False)
    header = _HEADER.format(language=catalog.locale, plural_forms=catalog.plural_forms)
    return header + body.getvalue().decode().lstrip("\n").rstrip("\n") + "\n"


def json_of(catalog: Catalog) -> str:
    """Return the text of the file that JupyterLab reads, in the form of Jed 2."""
    entries: dict[str, object] = {
        "": {
            "domain": DOMAIN,
            "language": str(catalog.locale).replace("_", "-"),
            "plural_forms": catalog.plural_forms,
            "version": __version__,
        }
    }
    for message in sorted(_messages(catalog), key=_key_of):
        if all(_translations(message)):  # an empty text would be shown as it is
            entries[_key_of(message)] = list(_translations(message))
    return json.dumps(entries, ensure_ascii=False, indent=2) + "\n"


def problems_of(directory: Path, catalog: Catalog) -> Iterator[str]:
    """Yield what is wrong with a language: missing translations, lost placeholders, files that are not up to date."""
    for message in _messages(catalog):
        text = [str(each) for each in (message.id if isinstance(message.id, (tuple, list)) else (message.id,))]
        translations = _translations(message)
        if not all(translations):
            yield f"{directory}: not translated: {text[0]!r}"
            continue
        for number, translation in enumerate(translations):
            # In a singular the number may be a word, unless the language has it for zero, too.
            allowed = [_placeholders(each) for each in (text if number == 0 else text[-1:])]
            if _placeholders(translation) not in allowed:
                yield f"{directory}: other placeholders than in {text[-1]!r}: {translation!r}"
    for name, text_now in (("po", po_of(catalog)), ("json", json_of(catalog))):
        file = directory / f"{DOMAIN}.{name}"
        if not file.is_file() or file.read_text(encoding="utf-8") != text_now:
            yield f"{file}: not up to date; run: python -m tools.make_translations"


def _messages(catalog: Catalog) -> list[Message]:
    return [message for message in catalog if message.id]


def _translations(message: Message) -> tuple[str, ...]:
    return tuple(message.string) if isinstance(message.string, (tuple, list)) else (str(message.string or ""),)


def _placeholders(text: str) -> list[str]:
    return sorted(_PLACEHOLDER.findall(text))


def _key_of(message: Message) -> str:
    text = str(message.id[0] if isinstance(message.id, (tuple, list)) else message.id)
    return text if message.context is None else f"{message.context}{_CONTEXT_DELIMITER}{text}"


def main() -> int:
    """Update or check the files of all languages; return the exit code."""
    texts = extract_texts()
    problems: list[str] = []
    for directory in sorted(LOCALES.glob("*/LC_MESSAGES")):
        catalog = read_catalog(directory, texts)
        if "--check" not in sys.argv[1:]:
            (directory / f"{DOMAIN}.po").write_text(po_of(catalog), encoding="utf-8")
            (directory / f"{DOMAIN}.json").write_text(json_of(catalog), encoding="utf-8")
        problems += problems_of(directory, catalog)
    print("\n".join(problems) or "all texts are translated")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
