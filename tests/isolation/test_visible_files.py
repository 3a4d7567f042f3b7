"""What a kernel has to see is worked out from its command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_exec_ext.isolation.common import visible_files
from jupyter_exec_ext.isolation.common.visible_files import VisibleFilesError, view_of
from jupyter_exec_ext.system import protected_paths
from jupyter_exec_ext.system.protected_paths import protect_path


@pytest.mark.parametrize("program", ["/bin/sh", "/usr/bin/env", "sh"])
def test_a_program_of_the_system_needs_no_installation_of_its_own(tmp_path: Path, program: str) -> None:
    """Not even ``/``, which a program in ``/bin`` might be taken to belong to."""
    work = tmp_path / "work"
    work.mkdir()
    view = view_of([program], str(work), resource_directory="")
    assert "/" not in view.read_only
    assert any(path.startswith("/usr") for path in view.read_only)


def test_an_environment_upon_the_systems_python_is_seen(tmp_path: Path) -> None:
    """Whichever of its two names the directory of the system's programs was found by."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to("/bin/sh")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /bin\n")
    work = tmp_path / "work"
    work.mkdir()
    view = view_of([os.fspath(tmp_path / "venv" / "bin" / "python")], str(work), resource_directory="")
    assert str(tmp_path / "venv") in view.read_only
    assert "/" not in view.read_only


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installation of a server, with its settings; there is also a directory ``work``."""
    settings = tmp_path / "server" / "etc" / "jupyter"
    settings.mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(visible_files, "jupyter_config_path", lambda: [str(settings)])
    return tmp_path / "server"


def test_settings_in_a_directory_that_is_only_seen_are_hidden(tmp_path: Path, installation: Path) -> None:
    view = view_of(["sh"], str(tmp_path / "work"), resource_directory="", read_only=[str(installation)])
    assert str(installation / "etc" / "jupyter") in view.hidden


def test_settings_of_the_server_make_a_working_directory_too_much(installation: Path) -> None:
    with pytest.raises(VisibleFilesError, match="too much as a working directory"):
        view_of(["sh"], str(installation), resource_directory="")


def test_settings_of_the_server_make_a_writable_directory_too_much(tmp_path: Path, installation: Path) -> None:
    with pytest.raises(VisibleFilesError, match="too much to be written"):
        view_of(["sh"], str(tmp_path / "work"), resource_directory="", writable=[str(installation)])


def test_settings_of_an_installation_are_hidden_if_the_directory_around_it_is_seen(tmp_path: Path) -> None:
    program = tmp_path / "all" / "venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.symlink_to("/bin/sh")
    (tmp_path / "all" / "venv" / "etc" / "jupyter").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    around = [str(tmp_path / "all")]
    view = view_of([str(program)], str(tmp_path / "work"), resource_directory="", read_only=around)
    assert str(tmp_path / "all" / "venv" / "etc" / "jupyter") in view.hidden


def test_settings_of_an_installation_in_the_working_directory_are_hidden(tmp_path: Path) -> None:
    program = tmp_path / "work" / "venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.symlink_to("/bin/sh")
    (tmp_path / "work" / "venv" / "etc" / "jupyter").mkdir(parents=True)
    view = view_of([str(program)], str(tmp_path / "work"), resource_directory="")
    assert (view.read_only_inside_work, view.hidden_inside_work) == (["venv"], ["venv/etc/jupyter"])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A server's store in a directory with a policy file and a directory ``work``; ``link`` has a link to the store."""
    monkeypatch.setattr(protected_paths, "_paths", {})
    for name in ("srv/store/logs", "srv/work", "link"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "srv" / "policies.json").write_text("{}")
    (tmp_path / "link" / "store").symlink_to(tmp_path / "srv" / "store")
    return tmp_path / "srv" / "store"


@pytest.mark.parametrize(
    ("protected", "work"), [("srv/store", "srv"), ("srv/policies.json", "srv"), ("link/store", "link")]
)
def test_working_or_writable_directory_with_store_or_policy_file_is_refused(
    tmp_path: Path, store: Path, protected: str, work: str
) -> None:
    inside = str(store.parent / "work")
    view_of(["sh"], str(tmp_path / work), resource_directory="")
    protect_path(tmp_path / protected)
    with pytest.raises(VisibleFilesError, match="too much as a working directory"):
        view_of(["sh"], str(tmp_path / work), resource_directory="")
    with pytest.raises(VisibleFilesError, match="too much to be written"):
        view_of(["sh"], inside, resource_directory="", writable=[str(tmp_path / work)])
    assert view_of(["sh"], inside, resource_directory="").work_directory == inside


def test_readable_directory_with_store_is_refused_and_with_policy_file_is_not(store: Path) -> None:
    around, work = [str(store.parent)], str(store.parent / "work")
    protect_path(store.parent / "policies.json")
    assert around[0] in view_of(["sh"], work, resource_directory="", read_only=around).read_only
    protect_path(store)
    with pytest.raises(VisibleFilesError, match="too much to be seen"):
        view_of(["sh"], work, resource_directory="", read_only=around)


def test_store_among_the_systems_files_is_hidden(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_files, "_SYSTEM", ("/usr", "/bin", "/lib", str(store.parent)))
    protect_path(store)
    work = store.parent.parent / "link"
    assert str(store) in view_of(["sh"], str(work), resource_directory="").hidden
