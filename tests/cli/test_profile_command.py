"""``jupyter exec profile``: the file of profiles, and what is said where it is wrong."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jsonschema
import pytest

from jupyter_exec_ext.cli.main import main
from tests.cli.test_json_output import SHAPES

if sys.version_info >= (3, 11):
    pass
else:
    pass


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config" / "jupyter_exec_config.toml"


def write(file: Path, text: str | bytes, mode: int = 0o600) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    file.chmod(mode)


def profiles(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str | None]]:
    capsys.readouterr()
    assert main(["profile", "list", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, SHAPES["profile list"])
    return list(printed["profiles"])


def test_profiles_are_added_listed_and_removed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert profiles(capsys) == []
    assert not file.exists()
    odd = '/odd "path"\\\x7f\t/é🙂'
    for name, more in (("work", ["--token-file", "/w/token"]), ("home", ["--ca-bundle", odd])):
        assert main(["profile", "add", name, "--server", f"https://{name}.example/lab", *more]) == 0
        assert str(file) in capsys.readouterr().err
    assert file.stat().st_mode & 0o777 == 0o600
    work = {"name": "work", "server": "https://work.example/", "token_file": "/w/token", "ca_bundle": None}
    home = {"name": "home", "server": "https://home.example/", "token_file": None, "ca_bundle": odd}
    assert profiles(capsys) == [work, home]
    assert main(["profile", "list"]) == 0
    assert "work  https://work.example/  /w/token    -" in capsys.readouterr().out
    assert main(["profile", "remove", "work"]) == 0
    assert profiles(capsys) == [home]
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_add_and_remove_keep_other_content(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = "# mine\n[other]\nserver = 1\n\n"
    after = "\n# about the last\n[last]\nb = 2\n"
    write(file, f'{kept}[profiles.server]\nserver = "http://old/"\n{after}')
    assert main(["profile", "add", "new", "--server", "http://new/"]) == 0
    assert main(["profile", "remove", "server"]) == 0
    assert file.read_text() == f'{kept}{after}\n[profiles.new]\nserver = "http://new/"\n'


def test_remove_of_inline_table_profile_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[profiles]\nold = {server = "http://old/"}\nother = {server = "http://other/"}\n'
    write(file, text)
    assert main(["profile", "remove", "old"]) == 2
    assert f"{file}, line 2: the profile 'old' has another form" in capsys.readouterr().err
    assert file.read_text() == text


def test_link_to_the_file_stays_a_link(file: Path, tmp_path: Path) -> None:
    write(tmp_path / "dotfiles" / "exec.toml", "")
    file.parent.mkdir()
    file.symlink_to(tmp_path / "dotfiles" / "exec.toml")
    assert main(["profile", "add", "work", "--server", "http://h/"]) == 0
    assert file.is_symlink() and "work" in (tmp_path / "dotfiles" / "exec.toml").read_text()


def test_failed_write_leaves_the_file_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(file, '[profiles.old]\nserver = "http://old/"\n')
    before = file.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert main(["profile", "add", "new", "--server", "http://new/"]) == 2
    assert f"{file} cannot be written (No space left on device)" in capsys.readouterr().err
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["work", "--server", "http://h/?token=s3cret"], "the URL holds a token"),
        (["work", "--server", "http://u:s3cret@h/"], "user name or password"),
        (["work", "--server", "ftp://h/"], "not the URL of a server"),
        (["auto", "--server", "http://h/"], "cannot name a profile"),
        (["a.b", "--server", "http://h/"], "cannot name a profile"),
        (["taken", "--server", "http://h/"], "remove it with 'jupyter exec profile remove taken'"),
    ],
)
def test_refused_profile_changes_nothing(
    file: Path, capsys: pytest.CaptureFixture[str], args: list[str], words: str
) -> None:
    write(file, '[profiles.taken]\nserver = "http://old/"\n')
    before = file.read_bytes()
    assert main(["profile", "add", *args]) == 2
    said = capsys.readouterr().err
    assert words in said and "s3cret" not in said and len(said.splitlines()) == 1
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[profiles.a]\nserver 'http://h/'\n", 2, "this is not TOML"),
        ("[profiles.a]\nserver = 'x", 2, "this is not TOML"),
        ("\nprofiles = 3\n", 2, "write [profiles.NAME]"),
        ("# b\n[profiles.b]\n", 2, "has no server"),
        ("[profiles.b]\nserver = 3\n", 1, "has no server"),
        ("[profiles.b]\nserver = 'http://h/'\ntoken = 's3cret'\n", 1, "unknown field 'token'"),
        ("[profiles.b]\nserver = 'http://h/'\ntoken_file = 3\n", 1, "put it into quotes"),
        ("[profiles.b]\nserver = 'ftp://h/'\n", 1, "cannot be used"),
        ("[profiles.b]\nserver = 'http://h/?token=s3cret'\n", 1, "holds a token"),
        ("\n[profiles.'a.b']\nserver = 'http://h/'\n", 2, "cannot name a profile"),
    ],
)
def test_wrong_file_is_named_with_line_and_remedy(
    file: Path, capsys: pytest.CaptureFixture[str], text: str, line: int, words: str
) -> None:
    write(file, text)
    for args in (["profile", "list"], ["session", "list", "--server", "b"]):
        assert main(args) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"jupyter exec: {file}, line {line}: ") and len(said.splitlines()) == 1
        assert words in said and "s3cret" not in said


def test_file_that_cannot_be_read_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, b"\xff")
    assert main(["profile", "list"]) == 2
    assert f"{file} cannot be read (it is not UTF-8)" in capsys.readouterr().err
    file.unlink()
    file.mkdir()
    assert main(["profile", "list"]) == 2
    assert f"{file} cannot be read (Is a directory)" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no modes of this kind")
def test_file_that_others_can_write_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, '[profiles.a]\nserver = "http://h/"\n', 0o622)
    assert main(["session", "list", "--server", "a"]) == 2
    assert f"chmod 600 {file}" in capsys.readouterr().err
