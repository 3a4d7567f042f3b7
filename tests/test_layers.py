"""Arrows point down only: the imports of every module, held against the layers of ``docs/architecture.md``."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "jupyter_exec_ext"

# What each part of the package may import from the others. `models` and `errors` are below everything.
MAY_IMPORT: dict[str, set[str]] = {
    "models": set(),
    "errors": set(),
    "removal": set(),
    "exhaustion": {"errors"},
    "marked_processes": set(),
    "in_kernel": set(),
    "wire": {"models", "errors"},
    "auth": {"models", "errors"},
    "engine": {"models", "errors", "exhaustion", "removal", "marked_processes", "wire", "auth"},
    "store": {"models", "errors", "removal", "wire", "auth"},
    "audit": {"models", "errors"},
    "assembly": {"models", "errors", "marked_processes", "engine", "store", "audit"},
    "server": {"models", "errors", "exhaustion", "wire", "auth", "engine", "assembly", "__init__"},
    "gateway": {"models", "errors", "exhaustion", "wire", "auth", "engine", "assembly", "server"},
    "provisioners": {"models", "errors", "removal", "wire", "client"},
    "client": {"models", "errors", "wire"},
    "embedded": {"models", "errors", "exhaustion", "marked_processes", "wire", "client"},
    "executors": {"models", "errors", "wire", "client", "embedded"},
    "adapters": {"models", "errors", "client", "executors"},
    "cli": {"models", "errors", "wire", "client", "executors", "store", "provisioners", "__init__"},
    "__init__": {"server", "client", "executors"},
}

# Libraries that must not be imported where the layer knows nothing of what they are for.
FORBIDDEN: dict[str, set[str]] = {
    "models": {"*"},
    "errors": {"*"},
    "removal": {"*"},
    "wire": {"*"},
    "auth": {"*"},
    "engine": {"tornado.web", "jupyter_server", "kernel_gateway", "sqlite3", "requests", "aiohttp"},
    "store": {"tornado", "jupyter_server", "kernel_gateway", "jupyter_client", "zmq"},
    "audit": {"tornado", "jupyter_server", "kernel_gateway", "jupyter_client", "zmq", "sqlite3", "requests", "aiohttp"},
    "provisioners": {"tornado.web", "jupyter_server", "kernel_gateway", "sqlite3", "requests", "aiohttp"},
    "client": {"tornado", "zmq", "traitlets", "jupyter_server", "jupyter_client", "kernel_gateway"},
    "embedded": {"tornado", "jupyter_server", "kernel_gateway", "sqlite3", "requests", "aiohttp"},
    "executors": {"tornado", "zmq", "traitlets", "jupyter_server", "jupyter_client", "kernel_gateway"},
    "adapters": {"tornado", "zmq", "traitlets", "jupyter_server", "jupyter_client", "kernel_gateway"},
}


def part_of(module: Path) -> str:
    """Return which part of the package a file belongs to."""
    relative = module.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(module: Path) -> set[str]:
    """Return the absolute names of everything a file imports."""
    package = ["jupyter_exec_ext", *module.relative_to(ROOT).parent.parts]
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            found.update(f"{name}.{alias.name}" for alias in node.names)
    return found


MODULES = sorted(path for path in ROOT.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_from_below_only(module: Path) -> None:
    part = part_of(module)
    assert part in MAY_IMPORT, f"say in MAY_IMPORT where {part} belongs"
    for name in imports_of(module):
        if name.startswith("jupyter_exec_ext."):
            target = name.split(".")[1]
            target = target if target in MAY_IMPORT else "__init__"
            assert target == part or target in MAY_IMPORT[part], f"{module} imports {name}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_no_library_its_layer_must_not_know(module: Path) -> None:
    forbidden = FORBIDDEN.get(part_of(module), set())
    for name in imports_of(module):
        if name.startswith("jupyter_exec_ext."):
            continue
        if "*" in forbidden:
            assert name.split(".")[0] in sys.stdlib_module_names, f"{module} imports {name}"
        assert not any(name == f or name.startswith(f"{f}.") for f in forbidden), f"{module} imports {name}"


def test_the_layers_in_the_architecture_are_those_tested() -> None:
    text = (ROOT.parent / "docs" / "architecture.md").read_text()
    for part in MAY_IMPORT:
        assert part == "__init__" or f"`{part}`" in text, part


LIGHT = "import {module}, sys; print('\\n'.join(sorted(sys.modules)))"


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("jupyter_exec_ext", {"requests", "aiohttp", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"}),
        ("jupyter_exec_ext.client", {"requests", "aiohttp", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"}),
        (
            "jupyter_exec_ext.client.sync",
            {"aiohttp", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"},
        ),
        (
            "jupyter_exec_ext.client.aio",
            {"requests", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"},
        ),
        (
            "jupyter_exec_ext.client.sync_aca",
            {"aiohttp", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm", "azure"},
        ),
        (
            "jupyter_exec_ext.client.aio_aca",
            {"requests", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm", "azure"},
        ),
        (
            "jupyter_exec_ext.executors",
            {"requests", "aiohttp", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"},
        ),
        *(
            (
                f"jupyter_exec_ext.executors.{name}",
                {"aiohttp", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"},
            )
            for name in ("aca", "binder", "docker", "embedded", "hub", "jupyter", "local")
        ),
    ],
)
def test_an_agents_process_stays_light(statement: str, absent: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT.format(module=statement)], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded & absent == set()
    assert statement.split(".")[0] in loaded
