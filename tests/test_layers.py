"""Arrows point down only: the imports of every module, held against the layers of the architecture page."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "jupyter_exec_ext"

# Imports that each part of the package may have from the others. `errors` and `models` are below everything else. The
# folders of `aca` are parts of their own, since the client's half is light and the server's half is not. Those of
# `engine` are floors; from outside, `engine` stands for all of them.
MAY_IMPORT: dict[str, set[str]] = {
    "models": {"errors"},
    "errors": set(),
    "system": {"errors"},
    "in_kernel": set(),
    "protocol": {"models", "errors"},
    "auth": {"models", "errors", "isolation.network"},  # its rules are pure
    "audit": {"models", "errors", "protocol"},
    "engine.concurrency": set(),
    "engine.change_feed": {"models", "protocol"},
    "engine.ports": {"models", "protocol", "auth", "isolation.network"},
    # Kernels go back to checkpoints by the process from which they are forked.
    "engine.kernels": {"models", "errors", "system", "protocol", "engine.concurrency", "engine.ports", "forkserver"},
    "engine.packages": {"errors", "system"},
    "engine.settings": {"models", "errors", "protocol", "auth", "engine.kernels", "engine.packages"},
    "engine.files": {"models", "errors", "system", "protocol", "auth", "engine.concurrency", "engine.ports"},
    "engine.executions": {
        *("models", "errors", "protocol", "auth"),
        *("engine.concurrency", "engine.change_feed", "engine.ports", "engine.kernels", "engine.files"),
    },
    "engine.access": {
        *("models", "errors", "protocol", "auth", "isolation.network"),
        *("engine.concurrency", "engine.change_feed", "engine.ports", "engine.kernels", "engine.settings"),
    },
    "engine.sessions": {
        *("models", "errors", "system", "protocol", "auth", "engine.concurrency", "engine.change_feed"),
        "isolation.network",
        *("engine.ports", "engine.kernels", "engine.settings", "engine.files", "engine.executions", "engine.access"),
        *("engine.packages", "forkserver"),
    },
    "engine": {
        *("models", "errors", "system", "protocol", "auth", "engine.concurrency", "engine.change_feed"),
        *("engine.ports", "engine.kernels", "engine.settings", "engine.files", "engine.executions", "engine.access"),
        "engine.sessions",
    },
    "store": {"models", "errors", "system", "protocol", "auth", "audit"},
    "assembly": {"models", "errors", "system", "engine", "store", "audit", "isolation.network"},
    "server": {
        *("models", "errors", "system", "protocol", "auth", "engine", "assembly", "isolation.network"),
        *("aca.endpoint", "mcp", "session_ports", "standard_api", "__init__"),
    },
    "standard_api": {"models", "errors", "protocol", "auth", "engine", "server"},
    "session_ports": {
        *("models", "errors", "system", "protocol", "auth", "engine", "isolation.sandbox", "server"),
    },
    "mcp": {"models", "errors", "protocol", "auth", "engine", "server", "__init__"},
    "gateway": {
        "models",
        "errors",
        "system",
        "protocol",
        "auth",
        "engine",
        "assembly",
        "server",
        "mcp",
        "session_ports",
        "standard_api",
    },
    "magic": {"models", "errors", "client"},
    "fleet": {
        *("models", "errors", "system", "protocol", "auth", "store", "client", "executors", "aca.protocol"),
        "__init__",
    },
    "isolation": set(),
    "isolation.common": {"system"},
    "isolation.sandbox": {"system", "isolation.common"},
    "isolation.landlock": {"system", "isolation.common"},
    "isolation.network": {"isolation.common"},  # for the server's directory
    "forkserver": {"models", "errors", "system", "protocol"},
    "client": {"models", "errors", "system", "protocol"},
    "embedded": {"models", "errors", "system", "protocol", "client"},
    "executors": {"models", "errors", "protocol", "client", "embedded"},
    "aca": set(),
    "aca.protocol": {"models", "errors", "protocol"},
    "aca.client": {"models", "errors", "protocol", "client", "aca.protocol"},
    "aca.executor": {"models", "errors", "protocol", "client", "executors", "aca.protocol", "aca.client"},
    "aca.provisioner": {"models", "errors", "system", "protocol", "client", "aca.protocol", "aca.client"},
    "aca.endpoint": {"models", "errors", "protocol", "auth", "engine", "server", "aca.protocol"},
    "adapters": {"models", "errors", "client", "executors", "aca.client", "aca.executor"},
    "cli": {
        *("models", "errors", "protocol", "auth", "audit", "client", "executors", "store", "adapters", "fleet"),
        *("isolation.common", "isolation.sandbox", "forkserver", "aca.protocol", "aca.provisioner", "__init__"),
        *("engine.settings", "isolation.network"),  # the doctor checks the policies of a configuration
    },
    "__init__": {"models", "errors", "server", "client", "executors", "magic"},
}
# Packages that name the classes of a part above them, which is imported when such a class is used.
FACADES = {"client/__init__.py": {"aca.client"}, "executors/__init__.py": {"aca.executor"}}

# Libraries that must not be imported where the layer knows nothing of what they are for.
_NO_SERVER = {"tornado", "zmq", "traitlets", "jupyter_server", "jupyter_client", "kernel_gateway"}
_NO_HTTP = {"tornado.web", "jupyter_server", "kernel_gateway", "sqlite3", "requests", "aiohttp"}
FORBIDDEN: dict[str, set[str]] = {
    "models": {"*"},
    "errors": {"*"},
    "system": {"*"},
    "protocol": {"*"},
    "auth": {"*"},
    "engine": _NO_HTTP,
    "store": {"tornado", "jupyter_server", "kernel_gateway", "jupyter_client", "zmq"},
    "audit": {"tornado", "jupyter_server", "kernel_gateway", "jupyter_client", "zmq", "sqlite3", "requests", "aiohttp"},
    "fleet": {"zmq", "jupyter_server", "jupyter_client", "kernel_gateway"},
    "isolation.common": _NO_HTTP,
    "isolation.sandbox": _NO_HTTP,
    "isolation.landlock": _NO_HTTP,
    "isolation.network": _NO_HTTP | _NO_SERVER,
    "forkserver": _NO_HTTP,
    "client": _NO_SERVER,
    "embedded": {"tornado", "jupyter_server", "kernel_gateway", "sqlite3", "requests", "aiohttp"},
    "executors": _NO_SERVER,
    "aca.protocol": {"*"},
    "aca.client": _NO_SERVER,
    "aca.executor": _NO_SERVER,
    "aca.provisioner": _NO_HTTP,
    "adapters": _NO_SERVER,
}


def part_of(module: Path) -> str:
    """Return which part of the package a file belongs to."""
    relative = module.relative_to(ROOT)
    if len(relative.parts) == 1:
        return relative.stem
    return named_part(relative.with_suffix("").parts)


def named_part(names: Sequence[str]) -> str:
    """Return the part that a module of the package is in, by the names on the way to it."""
    inner = ".".join(names[:2])
    return inner if inner in MAY_IMPORT else names[0] if names[0] in MAY_IMPORT else "__init__"


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
            target = named_part(name.split(".")[1:])
            allowed = MAY_IMPORT[part] | FACADES.get(str(module.relative_to(ROOT)), set())
            outside = target.split(".")[0] if not part.startswith("engine") else target
            assert target == part or target in allowed or outside in allowed, f"{module} imports {name}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_no_library_its_layer_must_not_know(module: Path) -> None:
    part = part_of(module)
    forbidden = FORBIDDEN.get(part, FORBIDDEN.get("engine", set()) if part.startswith("engine.") else set())
    for name in imports_of(module):
        if name.startswith("jupyter_exec_ext."):
            continue
        if "*" in forbidden:
            # `tomli` stands in for the standard library's `tomllib` before Python 3.11.
            beside = {"system": {"psutil"}, "auth": {"tomli"}}.get(part, set())
            assert name.split(".")[0] in sys.stdlib_module_names | beside, f"{module} imports {name}"
        assert not any(name == f or name.startswith(f"{f}.") for f in forbidden), f"{module} imports {name}"


def test_the_layers_in_the_architecture_are_those_tested() -> None:
    text = (ROOT.parent / "docs" / "contributing" / "architecture.md").read_text()
    for part in MAY_IMPORT:
        assert part == "__init__" or f"`{part.split('.')[0]}" in text, part


LIGHT = "import {module}, sys; print('\\n'.join(sorted(sys.modules)))"


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("jupyter_exec_ext", {"requests", "aiohttp", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"}),
        ("jupyter_exec_ext.client", {"requests", "aiohttp", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"}),
        (
            "jupyter_exec_ext.client.sync.client",
            {"requests", "aiohttp", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"},
        ),
        (
            "jupyter_exec_ext.client.aio.client",
            {"requests", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"},
        ),
        (
            "jupyter_exec_ext.aca.client.sync.pool_client",
            {"aiohttp", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm", "azure"},
        ),
        (
            "jupyter_exec_ext.aca.client.aio.pool_client",
            {"requests", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm", "azure"},
        ),
        (
            "jupyter_exec_ext.executors",
            {"requests", "aiohttp", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"},
        ),
        (
            "jupyter_exec_ext.aca.executor.aca_executor",
            {"aiohttp", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"},
        ),
        *(
            (
                f"jupyter_exec_ext.executors.{name}",
                {"aiohttp", "websocket", "tornado", "zmq", "traitlets", "jupyter_server", "tqdm"},
            )
            for name in ("binder", "docker", "embedded", "hub", "jupyter", "local")
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
