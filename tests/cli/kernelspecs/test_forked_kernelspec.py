"""``jupyter exec kernelspec install --fork`` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from jupyter_exec_ext.forkserver import ForkServerProvisioner
from tests.cli.kernelspecs.places import Jupyter

FORK = ("kernelspec", "install", "--fork")


def test_a_forked_kernelspec_is_like_the_one_it_was_made_from(jupyter: Jupyter) -> None:
    code, out, err = jupyter(*FORK, "--preload", "numpy", "pandas.core", "--preload", "json")
    assert code == 0, err
    written = json.loads(Path(out.strip(), "kernel.json").read_text())
    original = KernelSpecManager().get_kernel_spec("python3")
    assert (written["argv"], written["display_name"]) == (original.argv, f"{original.display_name} (forked)")
    stanza = written["metadata"].pop("kernel_provisioner")
    assert stanza == {
        "provisioner_name": "forkserver-provisioner",
        "config": {"preload": ["numpy", "pandas.core", "json"]},
    }
    assert written["metadata"] == original.metadata
    assert "jupyter exec run --kernel python3-fork FILE" in err
    spec = KernelSpecManager().get_kernel_spec("python3-fork")
    made = KernelProvisionerFactory.instance().create_provisioner_instance("id", spec, None)
    assert isinstance(made, ForkServerProvisioner)
    assert made.preload == ["numpy", "pandas.core", "json"]
    _, listed, _ = jupyter("kernelspec", "list")
    assert "forkserver-provisioner" in listed


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--from", "shell"], "the kernels of 'shell' cannot be forked: only 'python -m ipykernel_launcher"),
        (["--from", "nothing"], "no kernelspec 'nothing' is installed here"),
        (["--preload", "numpy, pandas"], "it takes names of modules"),
        (["--read-only", "/"], "--read-only is for kernels that are isolated"),
        (["--env", "A"], "--env is for kernels that are isolated"),
        (["--credential", "azure"], "--credential is for --aca"),
    ],
)
def test_unforkable_kernelspec_is_rejected(jupyter: Jupyter, options: list[str], why: str) -> None:
    jupyter.add("shell")
    code, out, err = jupyter(*FORK, *options)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert why in err
    assert not (jupyter.kernels / "python3-fork").exists()


def test_preloading_is_for_forked_kernels_only(jupyter: Jupyter) -> None:
    code, _, err = jupyter("kernelspec", "install", "--sandbox", "--preload", "numpy")
    assert code == 2 and "--preload is for --fork" in err


def test_install_without_fork_support_warns(jupyter: Jupyter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForkServerProvisioner, "unavailable", classmethod(lambda _: "this system has no fork"))
    code, _, err = jupyter(*FORK)
    assert code == 0 and "the kernel will be started as usual: this system has no fork" in err
