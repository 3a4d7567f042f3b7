"""The page on a pool on Slurm: `tests/slurm` runs its configuration, and the settings that it names exist."""

from __future__ import annotations

import re

from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.fleet.pool_settings import ExecPool
from jupyter_exec_ext.store.store import ExecStore
from tests.docs.admin import page
from tests.support.howto_pages import Recipe

PAGE = page("slurm")
CONFIGURATION = Recipe(PAGE, None, {}).file("/etc/jupyterhub/slurm_config.py")


def test_options_of_servers_and_settings_of_the_pool_exist() -> None:
    known = {cls.__name__: cls.class_trait_names(config=True) for cls in (ExecEngine, ExecStore)}
    options = re.findall(r"--(\w+)\.(\w+)=", CONFIGURATION)
    assert len(options) == 3
    for name, trait in options:
        assert trait in known[name], (name, trait)
    named = set(re.findall(r"`((?:max|min|lost)_\w+)`", PAGE))
    assert len(named) == 3 and named <= set(ExecPool.class_trait_names(config=True))


def test_runs_have_less_time_to_end_than_the_job() -> None:
    drain = re.search(r"drain_seconds=(\d+)", CONFIGURATION)
    signal = re.search(r"--signal=B:TERM@(\d+)", CONFIGURATION)
    assert drain and signal and int(drain[1]) < int(signal[1])
