"""The JupyterLab front end in the wheel: it is there, the same wherever it is built, and missing only where it must."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

import jupyter_exec_ext
from hatch_labextension import STAMP, fingerprint
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.engine.settings import EngineSettings
from tests.support.full import IS_FULL, only_in_full
from tests.support.outside_parts import require_part

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "labextension"
INSTALLED = "share/jupyter/labextensions/@jupyter-exec-ext/labextension/"
PLATFORMS = 14  # that Rspack is made for
MAX_BUNDLE_BYTES = 150_000  # gzipped

pytestmark = pytest.mark.timeout(900)  # `npm ci`, twice in the full run


def packages_of_the_lock() -> dict[str, dict[str, object]]:
    packages: dict[str, dict[str, object]] = json.loads((SOURCES / "package-lock.json").read_text())["packages"]
    return packages


def test_the_lock_names_no_registry() -> None:
    packages = packages_of_the_lock()
    assert len(packages) > 200
    for name, package in packages.items():
        assert "resolved" not in package, name
        assert name == "" or "integrity" in package, name


def test_the_lock_has_the_compiler_of_every_platform() -> None:
    bindings = {name: package for name, package in packages_of_the_lock().items() if "/@rspack/binding-" in name}
    assert len(bindings) == PLATFORMS
    assert all(package.get("version") for package in bindings.values())


def test_the_version_is_the_package_s() -> None:
    assert json.loads((SOURCES / "package.json").read_text())["version"] == jupyter_exec_ext.__version__
    assert packages_of_the_lock()[""]["version"] == jupyter_exec_ext.__version__


def test_a_checkout_tells_where_its_bundle_is() -> None:
    (entry,) = jupyter_exec_ext._jupyter_labextension_paths()
    assert (Path(jupyter_exec_ext.__file__).parent / entry["src"]).resolve().parent == SOURCES.resolve()
    assert entry["dest"] == json.loads((SOURCES / "package.json").read_text())["name"]


def test_every_command_and_setting_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "jupyterlab.md").read_text()
    commands = re.findall(r"'(jupyter-exec-ext:[a-z-]+)'", (SOURCES / "src" / "commands" / "ids.ts").read_text())
    assert len(commands) > 10
    for command in commands:
        assert f"| `{command}` |" in page, command
    for setting in json.loads((SOURCES / "schema" / "plugin.json").read_text())["properties"]:
        assert f"`{setting}`" in page, setting


def test_every_limit_has_a_name_for_people() -> None:
    words = (SOURCES / "src" / "panel" / "limits.ts").read_text(encoding="utf-8")
    named = set(re.findall(r"case '(\w+)':", words))
    limits = {each.name for each in fields(Policy)} - {"name"} | set(EngineSettings().limits())
    assert limits - named == set()


def test_every_change_of_a_source_counts_and_line_ends_do_not(tmp_path: Path) -> None:
    checkout(tmp_path / "a")
    root = tmp_path / "a" / "labextension"
    before = fingerprint(root)
    script = root / "src" / "index.ts"
    script.write_bytes(script.read_bytes().replace(b"\n", b"\r\n"))
    assert fingerprint(root) == before
    script.write_bytes(script.read_bytes() + b"// more\n")
    assert fingerprint(root) != before


def checkout(to: Path) -> Path:
    """Copy what is in git, and what is about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)
    return to


@dataclass(frozen=True)
class Builder:
    """A Python that has the build's requirements, and nothing else."""

    python: Path

    def run(self, kind: str, source: Path, to: Path, **env: str) -> subprocess.CompletedProcess[str]:
        """Build in `source`; the one file that is made is in `to`."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "REQUIRE_LABEXTENSION")}
        command = [str(self.python), "-m", "hatchling", "build", "-t", kind, "-d", str(to)]
        return subprocess.run(command, cwd=source, env=kept | env, capture_output=True, text=True, check=False)

    def built(self, kind: str, source: Path, to: Path, **env: str) -> Path:
        done = self.run(kind, source, to, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        (file,) = to.iterdir()
        return file


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    home = tmp_path_factory.mktemp("builder")
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    text = (ROOT / "pyproject.toml").read_text()
    match = re.search(r"^requires = (\[.*\])$", text, re.MULTILINE)
    assert match is not None
    subprocess.run([python, "-m", "pip", "install", "--quiet", *json.loads(match[1])], check=True, env=_quiet())
    return Builder(python)


def _quiet() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout; with the bundle that was built here from the same sources, if there is one, but for the full run."""
    copy = checkout(tmp_path_factory.mktemp("one") / "source")
    stamp = SOURCES / "dist" / STAMP
    if not IS_FULL and stamp.exists() and stamp.read_text().strip() == fingerprint(copy / "labextension"):
        shutil.copytree(SOURCES / "dist", copy / "labextension" / "dist")
    return copy


@pytest.fixture(scope="module")
def wheel(builder: Builder, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_part("node and npm")
    return builder.built("wheel", source, tmp_path_factory.mktemp("wheel"), REQUIRE_LABEXTENSION="1")


def bundle_of(wheel: Path) -> dict[str, bytes]:
    """Return the files of the front end, by their path below its directory."""
    with zipfile.ZipFile(wheel) as archive:
        return {name.partition(INSTALLED)[2]: archive.read(name) for name in archive.namelist() if INSTALLED in name}


def test_the_wheel_has_the_front_end(wheel: Path) -> None:
    bundle = bundle_of(wheel)
    package = json.loads(bundle["package.json"])
    assert package["jupyterlab"]["_build"]["load"] in bundle
    assert json.loads(bundle["install.json"])["packageName"] == "jupyter_exec_ext"
    assert any(name.endswith("plugin.json") for name in bundle)


def test_the_front_end_is_small(wheel: Path) -> None:
    scripts = [content for name, content in bundle_of(wheel).items() if name.endswith(".js")]
    assert scripts
    assert sum(len(gzip.compress(content, mtime=0)) for content in scripts) <= MAX_BUNDLE_BYTES


@only_in_full
def test_the_wheel_is_the_same_from_another_folder_and_from_the_sdist(
    wheel: Path, builder: Builder, source: Path, tmp_path: Path
) -> None:
    other = checkout(tmp_path / "in" / "another place")
    again = builder.built("wheel", other, tmp_path / "wheel", REQUIRE_LABEXTENSION="1")
    assert again.read_bytes() == wheel.read_bytes()

    sdist = builder.built("sdist", source, tmp_path / "sdist")
    shutil.unpack_archive(sdist, tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    nowhere = tmp_path / "empty"
    nowhere.mkdir()
    # Without Node: an sdist carries the bundle.
    from_sdist = builder.built("wheel", unpacked, tmp_path / "again", REQUIRE_LABEXTENSION="1", PATH=str(nowhere))
    assert from_sdist.read_bytes() == wheel.read_bytes()


def test_an_old_bundle_is_not_packed(builder: Builder, wheel: Path, source: Path, tmp_path: Path) -> None:
    copy = checkout(tmp_path / "copy")
    shutil.copytree(source / "labextension" / "dist", copy / "labextension" / "dist")
    script = copy / "labextension" / "src" / "index.ts"
    script.write_text(script.read_text() + "// more\n")
    done = builder.run("wheel", copy, tmp_path / "wheel", PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "WITHOUT the JupyterLab panel" in done.stdout + done.stderr
    (file,) = (tmp_path / "wheel").iterdir()
    assert bundle_of(file) == {}


def test_a_build_without_node_is_python_only_unless_the_front_end_is_required(builder: Builder, tmp_path: Path) -> None:
    copy = checkout(tmp_path / "copy")
    done = builder.run("wheel", copy, tmp_path / "wheel", PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "node and npm are not on PATH" in done.stdout + done.stderr
    (file,) = (tmp_path / "wheel").iterdir()
    assert bundle_of(file) == {}
    with zipfile.ZipFile(file) as archive:
        assert "jupyter_exec_ext/__init__.py" in archive.namelist()

    required = builder.run("wheel", copy, tmp_path / "required", PATH=str(tmp_path), REQUIRE_LABEXTENSION="1")
    assert required.returncode != 0
    assert "cannot build the JupyterLab extension: node and npm are not on PATH" in required.stderr + required.stdout


def test_jupyterlab_finds_the_front_end_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (data,) = tmp_path.glob("*.data/data")
    env = os.environ | {"JUPYTER_PATH": str(data / "share" / "jupyter")}
    command = [sys.executable, "-m", "jupyterlab.labextensions", "list"]
    listed = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    text = re.sub(r"\x1b\[[0-9;]*m", "", listed.stdout + listed.stderr)
    expected = rf"@jupyter-exec-ext/labextension v{re.escape(jupyter_exec_ext.__version__)} enabled\s+OK"
    assert re.search(expected, text), text
