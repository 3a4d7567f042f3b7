"""The documentation names everything there is: routes, scopes, traits, commands, options, error codes, events."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from exec_docs.install_lines import take_package_from_index

from jupyter_exec_ext.aca.provisioner import ACAProvisioner
from jupyter_exec_ext.auth.scopes import SCOPES
from jupyter_exec_ext.cli.main import build_parser
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import ExecError
from jupyter_exec_ext.forkserver import ForkServerProvisioner
from jupyter_exec_ext.gateway import ExecPersonality
from jupyter_exec_ext.isolation.common.isolated_provisioner import IsolatedProvisioner
from jupyter_exec_ext.models import ExecutionState
from jupyter_exec_ext.protocol.records_json import EVENT_TYPES
from jupyter_exec_ext.server.extension_app import ExecExtensionApp
from jupyter_exec_ext.server.routes import OPEN_ROUTES, ROUTES
from jupyter_exec_ext.store.store import ExecStore
from tests.aca_clients.__main__ import CLIENTS
from tests.contract.aca_exceptions import EXCEPTIONS
from tests.docs.blocks import pages

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_every_route_is_documented_with_its_scope() -> None:
    text = page("reference/http.md")
    rows = {
        line.split("|")[1].partition("](")[0].strip(" ["): line for line in text.splitlines() if line.startswith("| [`")
    }
    assert len(rows) == sum(len(route.methods) for route in (*OPEN_ROUTES, *ROUTES))
    for route in (*OPEN_ROUTES, *ROUTES):
        for method, access in route.methods.items():
            request = f"`{method} {route.path}`"
            cell = re.sub(r"\[(`[^`]+`)\]\([^)]+\)", r"\1", rows[request].split("|")[3]).strip()
            needed = "no token" if route in OPEN_ROUTES else "owner" if access.owner_only else "any"
            assert cell == (re.sub(r"\w+:\w+", r"`\g<0>`", access.scopes) or needed)
            assert text.count(f"### {request}\n") == 1


@pytest.mark.parametrize("name", SCOPES)
def test_every_scope_is_documented(name: str) -> None:
    assert f"## `{name}`\n\n{SCOPES[name][0].upper()}{SCOPES[name][1:]}.\n" in page("reference/scopes.md")


@pytest.mark.parametrize("code", ExecError.codes())
def test_every_error_code_is_documented_with_its_status(code: str) -> None:
    status = ExecError.codes()[code].status
    assert page("reference/errors.md").count(f"\n| `{code}` | {f'{status} |' if status else ''}") == 1


def test_every_state_and_event_type_is_documented() -> None:
    states = page("reference/records.md").partition("## States of an execution")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", states, re.MULTILINE) == [state.value for state in ExecutionState]
    for name in EVENT_TYPES:
        assert page("reference/events.md").count(f"### `{name}`\n") == 1, name


@pytest.mark.parametrize(
    "configurable",
    [
        ExecEngine,
        ExecStore,
        ExecExtensionApp,
        ExecPersonality,
        IsolatedProvisioner,
        ACAProvisioner,
        ForkServerProvisioner,
    ],
)
def test_every_trait_is_documented_with_its_default(configurable: type[ExecEngine]) -> None:
    text = page("reference/settings.md")
    section = text.partition(f"\n## `{configurable.__name__}`\n")[2].partition("\n## ")[0]
    defaults = dict(re.findall(rf"`c\.{configurable.__name__}\.(\w+)`: .*; default: (.*)\.$", section, re.MULTILINE))
    foreign = [base for base in configurable.__mro__ if not base.__module__.startswith("jupyter_exec_ext")]
    inherited = {name for base in foreign for name in getattr(base, "_traits", {})}
    ours = {name: trait for name, trait in configurable.class_traits(config=True).items() if name not in inherited}
    assert set(defaults) == set(ours)
    for name, trait in ours.items():
        assert trait.help, name
        assert f"\n### `{name}`\n" in section
        default = trait.default()
        if isinstance(default, (int, float)) and not hasattr(configurable, f"_default_{name}"):
            assert defaults[name].strip("`") in (str(default), f"{default:g}", str(int(default))), name


def test_every_exception_of_sessions_is_documented_with_its_reason() -> None:
    rows = [line for line in page("contributing/aca-contract.md").splitlines() if line.startswith("| `")]
    assert rows == [f"| `{test}` | {reason} |" for test, reason in EXCEPTIONS.items()]
    limits = page("aca/limits.md").partition("\n## In `exec/v1`\n")[2]
    told = [line.split("|")[1].strip() for line in limits.splitlines() if line.startswith("| ")][1:]
    assert sorted(told) == sorted(set(EXCEPTIONS.values()))
    for name in EXCEPTIONS:
        module, _, test = name.replace("results_standard::test_input", "results::test_input").partition("::")
        assert f"def {test}(" in (ROOT / "tests" / "contract" / f"{module}.py").read_text(), name


def options_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield each command with each of its long options."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield name, ""
                yield from options_of(command)
        for option in action.option_strings:
            if option.startswith("--") and option not in ("--help", "--version"):
                yield parser.prog, option


@pytest.mark.parametrize(("command", "option"), sorted(set(options_of(build_parser()))))
def test_every_command_and_option_is_documented(command: str, option: str) -> None:
    assert (option or f"{command}`") in page("reference/commands.md")


def test_the_clients_of_others_are_documented_with_the_versions_that_are_run() -> None:
    for client in CLIENTS.values():
        package, _, version = (client.alone or client.requirements[0]).partition("==")
        assert f"| `{package}` {version} |" in page("aca/other-clients.md")


def test_every_page_is_linked_and_every_link_leads_somewhere() -> None:
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name == "index.md" or f"]({path.name})" in page("index.md"), path.name
    for source in [ROOT / "CONTRIBUTING.md", *(ROOT / page for page in pages())]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", source.read_text()):
            assert (source.parent / link).exists(), f"{source.name}: {link}"


def test_the_readmes_two_commands_are_what_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    ci += take_package_from_index(ci)  # so that it holds after the first release, too
    commands = [line for line in README.splitlines() if line.startswith("pip install")]
    assert len(commands) == 2
    for command in commands:
        for part in command.split(" && "):
            assert part.removeprefix("pip install ") in ci


def test_the_changelog_has_an_entry_for_what_is_not_released() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"## Unreleased\n\n### Added\n\n- ", changes)
