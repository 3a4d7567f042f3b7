from __future__ import annotations

import pytest

from jupyter_exec_ext.errors import InvalidRequest
from jupyter_exec_ext.protocol.kernel_preparation import DEFAULT_NAMES, inherited_environment, kernel_environment

SERVER = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "HOME": "/root",
    "JUPYTER_TOKEN": "secret",
    "AZURE_CLIENT_SECRET": "secret",
    "KG_AUTH_TOKEN": "secret",
    "HTTP_PROXY": "http://user:secret@proxy",
}


def environment(caller: dict[str, str], callers: tuple[str, ...] = ("*",)) -> dict[str, str]:
    return kernel_environment(inherited_environment(SERVER, DEFAULT_NAMES), caller, caller_names=callers)


def test_only_chosen_names_are_inherited() -> None:
    assert environment({}) == {"PATH": "/bin", "LC_ALL": "C", "HOME": "/root"}


def test_the_caller_adds_and_overrides() -> None:
    assert environment({"PATH": "/opt", "MINE": "1"})["PATH"] == "/opt"
    assert environment({"MINE": "1"})["MINE"] == "1"


@pytest.mark.parametrize("name", ["JPY_PARENT_PID", "JUPYTER_CONFIG_DIR", "KG_AUTH_TOKEN", "JUPYTERHUB_API_TOKEN"])
def test_jupyters_own_names_are_reserved(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        environment({name: "x"})


def test_a_server_may_limit_the_names_a_caller_sets() -> None:
    assert environment({"KERNEL_X": "1"}, ("KERNEL_*",))["KERNEL_X"] == "1"
    with pytest.raises(InvalidRequest, match=r"KERNEL_\*"):
        environment({"OTHER": "1"}, ("KERNEL_*",))
    with pytest.raises(InvalidRequest, match="none"):
        environment({"OTHER": "1"}, ())
