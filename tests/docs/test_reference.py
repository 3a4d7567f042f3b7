"""The parts of the reference that are made from the code: nothing is left out, and no table ends too early."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exec_docs import PARTS, SITE_PARTS, without_directories, written
from exec_docs.audit import actions, schemas
from exec_docs.commands import COMMANDS, name_of, parsers, prog_of, synopsis
from exec_docs.events import json_type, own_fields
from exec_docs.http import TAGS, anchor, document, operations
from exec_docs.markdown import cell, code, named, prose, section, sentence, table
from exec_docs.python_api import HOMES, names
from exec_docs.schemas import bounds, extended, fields, type_of
from exec_docs.scopes import opened_by, owners_alone
from exec_docs.traits import CONFIGURABLES, default_of, kind_of, own_traits
from traitlets import Bool, Enum, Float, HasTraits, Instance, Integer, TraitType, Unicode, Union

import jupyter_exec_ext
from jupyter_exec_ext.audit import metrics_and_events
from jupyter_exec_ext.auth.scopes import SCOPES
from jupyter_exec_ext.errors import ExecError
from jupyter_exec_ext.protocol.records_json import EVENT_TYPES
from jupyter_exec_ext.server.routes import OPEN_ROUTES, PREFIX, ROUTES
from tests.docs.blocks import DOCS

PART = {name: part() for name, part in {**PARTS, **SITE_PARTS}.items()}
REQUESTS = "".join(PART[f"requests_{tag}"] for tag in TAGS)
SETTINGS = "".join(PART[f"settings_{cls.__name__}"] for cls in CONFIGURABLES)


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.*)$", text, re.MULTILINE)


# --- pieces ---------------------------------------------------------------------------------------------------------


def test_a_cell_stays_one_cell() -> None:
    assert cell("a | b\n  c") == "a \\| b c"
    assert table(["x", "y"], [["1|2", "3"]]) == "| x | y |\n| --- | --- |\n| 1\\|2 | 3 |\n"


def test_code_may_hold_backticks() -> None:
    assert [code("a"), code("a`b"), code("")] == ["`a`", "``a`b``", ""]


def test_a_sentence_begins_and_ends_as_one() -> None:
    assert [sentence("it is"), sentence("Is it?"), sentence(" ")] == ["It is.", "Is it?", ""]


def test_only_code_is_markdown_in_prose() -> None:
    assert prose("KG_* and *x*, <b>, [a](b), `c_*`") == r"KG\_\* and \*x\*, \<b>, \[a\](b), `c_*`"


def test_quoted_words_and_names_with_an_underscore_are_code() -> None:
    assert named("'auto' or max_bytes, KERNEL_* and `a_b`") == "`auto` or `max_bytes`, `KERNEL_*` and `a_b`"
    assert named("the user's own, at jupyter_exec_ext/work") == "the user's own, at `jupyter_exec_ext`/work"
    assert named("ExecStore.max_bytes. ``c_d``, n_max=1") == "`ExecStore.max_bytes`. `c_d`, `n_max=1`"


def test_a_section_leaves_out_what_is_empty() -> None:
    assert section(2, "A", "b\n", " ", "c") == "## A\n\nb\n\nc\n\n"


def test_schemas_are_put_into_words() -> None:
    assert type_of({"type": ["string", "null"]}) == "string or null"
    assert type_of({"type": "array", "items": {"$ref": "#/x/Token"}}) == "array of [`Token`](#token)"
    assert type_of({"enum": ["a", None]}) == "`a`, null"
    assert type_of({"oneOf": [{"type": "null"}, {"$ref": "#/x/Y"}]}) == "null or [`Y`](#y)"
    assert (
        bounds({"minimum": 1, "maximum": 1000000, "default": False})
        == "At least 1, at most 1,000,000, default `false`."
    )
    both = {"allOf": [{"$ref": "#/x/Y"}, {"required": ["a"], "properties": {"a": {"type": "string"}}}]}
    assert extended(both) == ["#/x/Y"]
    assert "| `a` | string | yes |  |" in fields(both)


def test_marks_are_replaced_and_nothing_else() -> None:
    mark = "<!-- written when the site is built: python_api -->"
    assert written(f"a\n{mark}\nb\n") == f"a\n{PART['python_api']}\nb\n"
    assert written(f"in a line: {mark}") == f"in a line: {mark}"
    with pytest.raises(KeyError):
        written("<!-- written when the site is built: nothing_known -->")


def test_links_to_directories_are_text() -> None:
    text = "[a](../tests) [b](../pyproject.toml) [c](index.md)"
    assert without_directories(text, DOCS) == "a [b](../pyproject.toml) [c](index.md)"


def test_every_part_has_its_page() -> None:
    text = "".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))
    assert {name: text.count(f"made from the code: {name} -->") for name in PARTS} == dict.fromkeys(PARTS, 1)
    assert {name: text.count(f"built: {name} -->") for name in SITE_PARTS} == dict.fromkeys(SITE_PARTS, 1)


def test_every_part_stands_in_its_page_for_code_hosts() -> None:
    text = "".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))
    for name in PARTS:
        shown = text.partition(f"made from the code: {name} -->\n")[2].partition("<!-- until here -->")[0]
        assert shown.strip() == PART[name].strip(), f"{name}: run python tools/make_reference.py"


# --- parts ----------------------------------------------------------------------------------------------------------


def test_every_request_and_every_record_is_there() -> None:
    sent = {(method, route.path) for route in (*OPEN_ROUTES, *ROUTES) for method in route.methods}
    records = [f"`{name}`" for name in document()["components"]["schemas"]]
    assert sorted(headings(REQUESTS)) == sorted(f"`{method} {path}`" for method, path in sent)
    assert headings(PART["records"]) == records
    assert operations(document()) == sent


def test_every_link_of_the_requests_leads_to_a_record() -> None:
    anchors = {anchor(heading) for heading in headings(PART["records"])}
    linked = re.findall(r"\]\(records\.md#([^)]+)\)", REQUESTS) + re.findall(r"\]\(#([^)]+)\)", PART["records"])
    assert {"execution", "error", "isolation"} <= set(linked) <= anchors
    assert "](#" not in REQUESTS


def test_the_table_of_requests_links_to_each() -> None:
    linked = re.findall(r"\]\(#([^)]+)\)", PART["request_table"])
    assert sorted(linked) == sorted(anchor(heading) for heading in headings(REQUESTS))
    assert anchor("`GET /sessions/{session_id}/files`") == "get-sessionssession_idfiles"


def test_every_request_says_who_may_send_it() -> None:
    words = [r"Scope: \[`\w+:\w+`\]\(.*", r"For every caller\.", r"For the server's owner alone\."]
    who = re.compile(rf"^({'|'.join(words)}|For everyone, without a token\.)$", re.MULTILINE)
    texts = re.split(r"^### ", REQUESTS, flags=re.MULTILINE)[1:]
    assert len(texts) == len(headings(REQUESTS))
    for text in texts:
        assert who.search(text), text


def test_scopes_open_what_the_route_table_says() -> None:
    assert headings(PART["scope_requests"]) == [*(f"`{name}`" for name in SCOPES), "For the owner alone"]
    assert opened_by("sessions:delete")[0] == f"DELETE /{PREFIX}/sessions/{{session_id}}"
    assert opened_by("kernels:attach") == [f"POST /{PREFIX}/sessions"]
    assert f"POST /{PREFIX}/executions" in set(opened_by("executions:create")) & set(opened_by("sessions:create"))
    assert f"GET /{PREFIX}/policies" in owners_alone()
    assert all(opened_by(name) for name in SCOPES)


def test_every_error_code_is_there_once() -> None:
    for name, error in ExecError.codes().items():
        text = PART["errors_of_servers" if error.status else "errors_of_clients"]
        assert len(re.findall(rf"^\| `{name}` \|.*`{error.__name__}`", text, re.MULTILINE)) == 1, name


def test_every_event_is_there_with_its_fields() -> None:
    assert headings(PART["events"]) == [f"`{name}`" for name in EVENT_TYPES]
    for event in EVENT_TYPES.values():
        for one in own_fields(event):
            assert f"| `{one.name}` | {json_type(str(one.type))} |" in PART["events"]
    with pytest.raises(KeyError):
        json_type("SomethingNew")


def test_every_action_of_the_audit_trail_is_there_with_its_meaning() -> None:
    assert headings(PART["audit"]) == ["In every record", *(f"`{kind}`" for kind in schemas())]
    assert schemas()["token"]["$id"] in PART["audit"]
    for schema in schemas().values():
        assert all(meaning for _, meaning in actions(schema["properties"]["action"]))
    with pytest.raises(KeyError):
        actions({"enum": ["unknown"], "description": "known - it is."})


def test_the_audit_schemas_are_those_that_are_emitted() -> None:
    folders = {path.name for path in (Path(metrics_and_events.__file__).parent / "schemas").iterdir() if path.is_dir()}
    assert folders == set(schemas())


def test_every_command_and_option_is_there() -> None:
    assert COMMANDS
    for command in COMMANDS:
        text = PART[f"command_{command}"]
        assert headings(text) == [f"`{prog_of(path)}`" for path, _ in parsers(command)[1:]]
        for path, parser in parsers(command):
            part = text if len(path) == 1 else text.partition(f"### `{prog_of(path)}`\n")[2]
            part = part.partition("\n### ")[0]
            for action in parser._actions:
                for option in action.option_strings if not isinstance(action, argparse._HelpAction) else []:
                    shown = part + PART["server_options"] if "(#server-options)" in part else part
                    assert f"`{option}" in shown or f", {option}" in shown, (path, option)
            assert f"`{synopsis(path, parser)}`" in part


def test_commands_stand_in_the_page_in_their_order() -> None:
    page = (DOCS / "reference" / "commands.md").read_text()
    shown = re.findall(r"^## `jupyter exec (\w+)`$", page, re.MULTILINE)
    assert sorted(shown) == sorted(COMMANDS)
    for command in COMMANDS:
        section_of = page.partition(f"\n## `jupyter exec {command}`\n")[2].partition("\n## ")[0]
        assert f"made from the code: command_{command} -->" in section_of


def test_each_text_of_a_server_option_has_a_row() -> None:
    rows = [line for line in PART["server_options"].splitlines() if line.startswith("| `--server ")]
    assert ["`jupyter exec run`" in rows[0], "all others" in rows[1], "`jupyter exec doctor`" in rows[2]] == [True] * 3
    assert "| `--token-file FILE` | all |" in PART["server_options"]


def test_arguments_are_named_as_they_are_written() -> None:
    parser = argparse.ArgumentParser()
    actions = [
        parser.add_argument("file", nargs="?"),
        parser.add_argument("ids", nargs="+", metavar="ID"),
        parser.add_argument("rest", nargs="*", metavar="PATH"),
        parser.add_argument("-v", "--verbose", action="store_true"),
        parser.add_argument("--level", choices=["a", "b"]),
        parser.add_argument("--pair", nargs=2, metavar="N", required=True),
    ]
    names = ["[file]", "ID [ID ...]", "[PATH ...]", "-v, --verbose", "--level {a,b}", "--pair N N"]
    assert [name_of(action) for action in actions] == names
    assert synopsis(("do",), parser) == "jupyter exec do --pair N N [OPTION ...] [file] ID [ID ...] [PATH ...]"
    with pytest.raises(KeyError):
        name_of(parser.add_argument("--all", nargs=argparse.REMAINDER))


def test_the_command_line_is_the_same_on_every_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    assert {name: part() for name, part in PARTS.items() if name.startswith("command_")} == {
        name: text for name, text in PART.items() if name.startswith("command_")
    }


def test_no_help_has_a_placeholder_left() -> None:
    assert not any(re.search(r"%\(\w+\)s", text) for text in PART.values())


def configurables() -> Iterator[type[HasTraits]]:
    """Yield our classes with settings, wherever they are."""
    for module in pkgutil.walk_packages(jupyter_exec_ext.__path__, "jupyter_exec_ext."):
        # Adapters need their frameworks; what begins with a kernel or a command is no library.
        if not re.search(
            r"\.adapters|\.__main__$|\.startup$|\.in_kernel\.(checkpoint|frozen_process|restored_kernel)$", module.name
        ):
            importlib.import_module(module.name)
    waiting: list[type[Any]] = [HasTraits]
    while waiting:
        found = waiting.pop()
        waiting += found.__subclasses__()
        if found.__module__.startswith("jupyter_exec_ext") and found.class_own_traits(config=True):
            yield found


def test_every_setting_is_there_with_its_help() -> None:
    said = {name for cls in CONFIGURABLES for name in own_traits(cls)}
    for cls in configurables():
        for name, trait in cls.class_own_traits(config=True).items():
            assert name in said, (cls, name)
            assert trait.help, (cls, name)
    for cls in CONFIGURABLES:
        assert own_traits(cls), cls
        for name in own_traits(cls):
            assert f"`c.{cls.__name__}.{name}`: " in PART[f"settings_{cls.__name__}"]


def test_settings_are_in_words_that_no_version_of_traitlets_changes() -> None:
    kinds: list[TraitType[Any, Any]] = [Bool(), Integer(), Float(), Unicode(), Enum(["a", "b"])]
    kinds.append(Union([Bool(), Unicode()]))
    words = ["`True` or `False`", "a whole number", "a number", "a text", "one of `'a'`, `'b'`"]
    assert [kind_of(kind) for kind in kinds] == [*words, "`True` or `False` or a text"]
    with pytest.raises(KeyError):
        kind_of(Instance(Path))


def test_whole_numbers_have_no_fraction() -> None:
    class Some(HasTraits):
        seconds = Float(300.0)
        grace = Float(0.5)
        name = Unicode("a")

    traits = Some.class_traits()
    assert [default_of(Some, name, traits[name]) for name in ("seconds", "grace", "name")] == [
        "`300`",
        "`0.5`",
        "`'a'`",
    ]


@pytest.mark.parametrize("name", PARTS)
def test_no_part_has_a_path_of_this_machine(name: str) -> None:
    assert str(Path.cwd()) not in PART[name]
    assert str(Path.home()) not in PART[name]


def test_every_public_name_is_there_once() -> None:
    public = {name for home in HOMES for name in importlib.import_module(home).__all__} - {"__version__", "errors"}
    found = [name for home in HOMES for name in names(home)]
    assert sorted(found) == sorted(public)
    for home in HOMES:
        for name in names(home):
            assert PART["python_api"].count(f":: {home}.{name}\n") == 1
            assert PART["public_names"].count(f"| `{name}` | `{home}` |") == 1


def test_what_calls_return_is_there() -> None:
    for path in ("Execution", "ExecutionState", "Session", "models.EndEvent", "models.IssuedToken"):
        assert PART["python_api"].count(f":: jupyter_exec_ext.{path}\n") == 1
    assert "StoredToken" not in PART["python_api"]


@pytest.mark.parametrize("name", PART)
def test_no_part_shows_an_object_of_python(name: str) -> None:
    assert not re.search(r"<[\w.]+ object at|0x[0-9a-f]{6}", PART[name])
