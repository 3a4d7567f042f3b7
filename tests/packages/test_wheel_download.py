"""Download of wheels by the server: which requirements it takes, its bounds, and what it says when pip fails."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from jupyter_exec_ext.engine.packages import wheel_download
from jupyter_exec_ext.engine.packages.wheel_download import download_wheels, parse_requirements
from jupyter_exec_ext.errors import PackagesNotFound
from tests.support.wheels import make_wheel

_MIB = 1024 * 1024


@pytest.mark.parametrize("text", ["pandas", "pandas==2.2", "a[b,c]>=1,<2", "a; python_version > '3'", "Zope.Interface"])
def test_requirements_are_taken(text: str) -> None:
    assert len(parse_requirements([text])) == 1


@pytest.mark.parametrize(
    "text",
    [
        *(
            "-r /etc/passwd",
            "--index-url=https://evil.example",
            "-e .",
            "./a.whl",
            "/a.whl",
            "file:///a.whl",
            "a.whl/..",
        ),
        *(
            "a @ https://evil.example/a.whl",
            "a @ file:///a.whl",
            "git+https://evil.example/a",
            "a b",
            "a\n--pre",
            "$(id)",
        ),
        *("a;", "", " ", "a==", "a\0", "../a", "é"),
    ],
)
def test_addresses_paths_and_options_are_refused(text: str) -> None:
    with pytest.raises(PackagesNotFound, match="'packages'"):
        parse_requirements([text])


async def test_wheels_come_with_all_that_they_require(tmp_path: Path) -> None:
    house = tmp_path / "house"
    make_wheel(house, "one", requires=["two>=1"])
    make_wheel(house, "two")
    directory = tmp_path / "incoming"
    directory.mkdir()
    found = await download_wheels(sys.executable, ["one"], directory, str(house), max_bytes=_MIB)
    assert [path.name for path in found] == ["one-1.0-py3-none-any.whl", "two-1.0-py3-none-any.whl"]


async def test_source_distribution_is_not_run(tmp_path: Path) -> None:
    house = tmp_path / "house"
    (house / "evil-1.0").mkdir(parents=True)
    (house / "evil-1.0" / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    process = await asyncio.create_subprocess_exec("tar", "czf", "evil-1.0.tar.gz", "evil-1.0", cwd=house)
    assert await process.wait() == 0
    with pytest.raises(PackagesNotFound, match="No matching distribution found for evil"):
        await download_wheels(sys.executable, ["evil"], tmp_path, str(house), max_bytes=_MIB)
    assert not (tmp_path / "ran").exists()


async def test_download_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_download, "_CHECK_SECONDS", 0.001)
    house = tmp_path / "house"
    make_wheel(house, "one")
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    (incoming / "large").write_bytes(bytes(1000))
    with pytest.raises(PackagesNotFound, match="more than 999 bytes"):
        await download_wheels(sys.executable, ["one"], incoming, str(house), max_bytes=999)


async def test_download_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_download, "DOWNLOAD_SECONDS", 0.0)
    monkeypatch.setattr(wheel_download, "_CHECK_SECONDS", 0.001)
    with pytest.raises(PackagesNotFound, match="took more than"):
        await download_wheels(sys.executable, ["one"], tmp_path, str(tmp_path), max_bytes=_MIB)


def test_messages_of_pip_have_no_credentials_and_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("noise\nERROR: Could not fetch https://user:pass-word@index.example/simple/\x1b[31m\nERROR: b\n")
    assert wheel_download._errors_in(log) == "Could not fetch https://index.example/simple/ [31m b"
