"""The control run: without a sandbox the attacks succeed, so a run in which they do not says something."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.containment.inside import Probe
from tests.containment.plain import NOBODY, PlainKernel
from tests.containment.probes import PROBES, SOURCES
from tests.containment.runner import Found, Unprotected, run_probes
from tests.containment.world import World
from tests.support.full import only_in_full

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self/ns"), reason="the attacks are on Linux"),
    pytest.mark.timeout(600),
]
IS_ROOT = os.geteuid() == 0

# What a process of the server's user can do to a server that knows nothing of sandboxes, wherever that runs.
ALWAYS_OPEN = {
    "token_in_the_own_environment",
    "token_in_the_environment_of_the_server",
    "token_in_the_file_of_the_running_server",
    "connection_file_of_another_session",
    "cookie_secret",
    "signal_to_the_server",
    "secret_by_its_path",
    "process_that_outlives_the_kernel",
    "process_that_has_no_parent",
    "service_of_the_host",
    "service_with_a_name_outside_of_the_file_system",
    "socket_of_another_kernel",
    "temporary_file_of_the_host",
    "file_of_another_session_removed",
    "inherited_file",
}
# Of the ways past a reader of code, those that need more than Python: a file's number can be used by root only.
NOT_EVERYWHERE = {"file_by_its_number_on_the_disk", "library_loaded_before_all_others"}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(user=NOBODY if IS_ROOT else None) as world:
        yield world


@pytest.fixture(scope="module")
def control(world: World) -> Found:
    """All probes in a kernel without a sandbox, of a user without privileges."""
    with PlainKernel(world) as kernel:
        return run_probes(kernel.start(), world, kernel.start)


def test_there_are_enough_probes_of_each_kind() -> None:
    groups = Counter(probe.group for probe in PROBES.values())
    assert sum(groups.values()) >= 45
    assert groups["bypass"] >= 30
    assert min(groups["theft"], groups["walls"], groups["escape"]) >= 15


@only_in_full
def test_no_probe_makes_a_mistake(control: Found) -> None:
    assert control.errors == {}
    assert control.keys() == PROBES.keys()


@only_in_full
def test_without_a_sandbox_the_attacks_succeed(control: Found) -> None:
    assert len(control.open) >= 60
    assert set(control.open) >= ALWAYS_OPEN


@only_in_full
def test_every_way_past_a_reader_of_code_has_an_effect_without_a_sandbox(control: Found) -> None:
    """Else one that was misspelt would count as stopped for ever."""
    bypasses = {name for name, probe in PROBES.items() if probe.group == "bypass"}
    if os.uname().machine != "x86_64":
        bypasses.discard("call_of_the_system_by_machine_code")
    assert bypasses - set(control.open) <= NOT_EVERYWHERE


@only_in_full
@pytest.mark.skipif(not IS_ROOT, reason="only root has these privileges")
@pytest.mark.needs("mounts")
def test_what_only_root_can_do_succeeds_for_root(control: Found) -> None:
    """In mounts of its own, and without harm: so the probes that nobody but root can try are known to work, too."""
    rest = [PROBES[name] for name, had_effect in control.items() if not had_effect]
    with World(user=0) as world, PlainKernel(world, own_mounts=True) as kernel:
        found = run_probes(kernel.start(), world, kernel.start, probes=rest)
    assert found.errors == {}
    assert {"capabilities", "mount_in_the_own_directory", "other_namespaces_by_unshare"} <= set(found.open)


@pytest.mark.skipif(not IS_ROOT, reason="the tests' own user has no privileges")
def test_no_attack_is_tried_by_root_in_the_hosts_own_mounts() -> None:
    with World(user=0) as world, PlainKernel(world) as kernel, pytest.raises(Unprotected):
        run_probes(kernel.start(), world, kernel.start)


HOPELESS = '''
import os, signal, time
from tests.containment.inside import probe

@probe("theft")
def ends_the_kernel(facts):
    """Nothing."""
    os._exit(1)

@probe("theft")
def never_ends(facts):
    """Nothing."""
    time.sleep(60)

@probe("theft")
def is_misspelt(facts):
    """Nothing."""
    return opne(facts["files"]["file"])

@probe("theft")
def is_refused(facts):
    """Nothing."""
    return bool(open("/nowhere"))

@probe("theft")
def says_nothing_of_its_effect(facts):
    """Nothing."""
    os.kill(facts["server"], signal.SIGUSR1)
    time.sleep(0.1)
'''


@only_in_full
def test_a_probe_that_does_not_end_well_is_told_from_one_that_was_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "tests.containment.hopeless", HOPELESS)
    names = ["ends_the_kernel", "never_ends", "is_misspelt", "is_refused", "says_nothing_of_its_effect"]
    probes = [Probe(name, "theft", "Nothing.", bool) for name in names]
    with PlainKernel(world) as kernel:
        found = run_probes(kernel.start(), world, kernel.start, probes=probes, deadline_seconds=5)
    assert found.open == ["says_nothing_of_its_effect"]
    assert found.notes["ends_the_kernel"] == "kernel died"
    assert found.notes["is_refused"].startswith("FileNotFoundError")
    assert found.notes["says_nothing_of_its_effect"] == "the server was signalled"
    assert found.errors.keys() == {"never_ends", "is_misspelt"}
    assert "NameError" in found.errors["is_misspelt"]
    assert found.errors["never_ends"] == "no answer within 5 s"
