"""``jupyter exec kernelspec install --aca`` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.kernelspecs.places import Jupyter

ENDPOINT = "https://northeurope.dynamicsessions.io/subscriptions/s/resourceGroups/g/sessionPools/p"
ACA = ("kernelspec", "install", "--aca")


def test_a_kernelspec_names_the_pool_and_where_tokens_come_from(jupyter: Jupyter) -> None:
    code, out, err = jupyter(*ACA, f"{ENDPOINT}/", "--credential", "token-file:/run/token", "--env", "LANG")
    assert (code, out) == (0, f"{jupyter.kernels}/aca\n")
    assert "there is no file /run/token" in err
    assert "jupyter exec run --kernel aca FILE" in err
    assert json.loads(Path(out.strip(), "kernel.json").read_text()) == {
        "argv": [],
        "display_name": "Python (Azure Container Apps)",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {
            "kernel_provisioner": {
                "provisioner_name": "aca-provisioner",
                "config": {
                    "endpoint": ENDPOINT,
                    "api_version": "2025-10-02-preview",
                    "credential": "token-file:/run/token",
                    "env": ["LANG"],
                },
            },
            "supported_encryption": "curve",
        },
    }


def test_names_and_the_version_can_be_chosen(jupyter: Jupyter) -> None:
    names = ("--name", "Pool", "--display-name", "My pool", "--api-version", "2024-02-02-preview")
    code, out, _ = jupyter(*ACA, ENDPOINT, *names)
    assert (code, out) == (0, f"{jupyter.kernels}/pool\n")
    written = json.loads(Path(out.strip(), "kernel.json").read_text())
    assert written["display_name"] == "My pool"
    assert written["metadata"]["kernel_provisioner"]["config"]["api_version"] == "2024-02-02-preview"


def test_azure_kernelspec_is_listed_as_remote(jupyter: Jupyter) -> None:
    jupyter(*ACA, ENDPOINT)
    _, out, _ = jupyter("kernelspec", "list")
    assert any(line.split()[:3] == ["aca", "remote", "aca-provisioner"] for line in out.splitlines())


def test_a_pool_elsewhere_must_be_allowed(jupyter: Jupyter) -> None:
    code, _, err = jupyter(*ACA, "https://pool.example/exec/aca")
    assert code == 0
    assert "ACAProvisioner.allowed_hosts" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("not an address",), "management endpoint"),
        ((ENDPOINT, "--credential", "eyJ0eXAi.a.b"), "name of a source"),
        ((ENDPOINT, "--credential", "token-file:relative"), "name of a source"),
        ((ENDPOINT, "--api-version", "2019-01-01"), "known are"),
        ((ENDPOINT, "--from", "ir"), "--from is for kernels of this machine"),
        ((ENDPOINT, "--network", "host"), "--network is for kernels of this machine"),
        ((ENDPOINT, "--name", "../x"), "--name"),
        ((ENDPOINT, "--env", "A=b"), "--env"),
    ],
)
def test_invalid_pool_is_rejected_before_writing(jupyter: Jupyter, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = jupyter(*ACA, *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
    assert "eyJ0eXAi" not in err
    assert not jupyter.kernels.exists()


def test_pool_options_are_rejected_for_other_kernels(jupyter: Jupyter) -> None:
    assert "--credential is for --aca" in jupyter.refusal("--credential", "azure")


def test_a_name_that_is_taken_is_refused_without_replace(jupyter: Jupyter) -> None:
    assert jupyter(*ACA, ENDPOINT)[0] == 0
    assert jupyter(*ACA, ENDPOINT)[0] == 2
    assert jupyter(*ACA, ENDPOINT, "--replace")[0] == 0
