"""Runs the tests of the front end in a real browser: ``python -m tests.browser [--prepare] [pytest's arguments…]``.

``--screenshots`` makes all pictures of the documentation anew instead, the README's animated one, too.

JupyterLab and Notebook 7, with this package's wheel as it is published, are in an environment of their own in
``.bench/browser``, which is made when first needed; the browser is Chromium, from ``$CHROMIUM`` or the ``PATH``.

A pytest of its own is needed as well: Playwright keeps an event loop running, beside which no asynchronous test runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.environments import ROOT, TOOLS, environment
from tests.support.full import IS_FULL
from tools.make_picture import PICTURE, make_picture

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HOME = ROOT / ".bench" / "browser"
TESTS = Path(__file__).parent
# The agents in the pictures use these libraries.
LIBRARIES = ("matplotlib>=3.9", "pandas>=2.2")


def prepare() -> Path:
    """Return the Python of the environment, in which there is the wheel of the sources as they are now."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    python = environment(
        HOME,
        [
            *project["dependencies"],
            *project["optional-dependencies"]["lab"],
            *project["optional-dependencies"]["mcp"],
            *project["optional-dependencies"]["network"],
            *settings["build-system"]["requires"],
            *("jupyterlab-language-pack-de-DE", "nbformat>=5.10", "notebook>=7.4", "playwright>=1.55"),
            *TOOLS,
        ],
    )
    _install_wheel(python)
    return python


def _install_wheel(python: Path) -> None:
    """Build the wheel and install it, unless it is there: the same sources give the same wheel."""
    installed = HOME / "wheel"
    with tempfile.TemporaryDirectory() as directory:
        build = [str(python), "-m", "hatchling", "build", "-t", "wheel", "-d", directory]
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            build, cwd=ROOT, env=kept | {"REQUIRE_LABEXTENSION": "1"}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stdout + done.stderr, flush=True)
        done.check_returncode()
        (wheel,) = Path(directory).iterdir()
        if installed.is_file() and installed.read_bytes() == wheel.read_bytes():
            return
        print("browser: installing the wheel", flush=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)]
        subprocess.run(pip, cwd=directory, check=True)
        installed.write_bytes(wheel.read_bytes())


def test(arguments: list[str]) -> None:
    """Run the tests; the servers that they start have the wheel, and not this checkout."""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environ["EXEC_TEST_BROWSER"] = "1"
    if IS_FULL:  # an app that sessions start, with what it needs
        python = environment(ROOT / ".bench" / "streamlit", ["ipykernel>=6.29", "streamlit>=1.40"])
        environ["EXEC_TEST_STREAMLIT"] = str(python)
    pytest = [str(prepare()), "-m", "pytest", f"--confcutdir={TESTS}"]
    given = any(not each.startswith("-") and (ROOT / each.partition("::")[0]).exists() for each in arguments)
    subprocess.run([*pytest, *arguments, *([] if given else [str(TESTS)])], cwd=ROOT, env=environ, check=True)


def make_pictures(arguments: list[str]) -> None:
    """Make the documentation's pictures anew."""
    PICTURE.write_text(make_picture(), encoding="utf-8")
    os.environ["EXEC_TEST_FORKED"] = "0"  # the pictures show the usual kernelspec's name
    subprocess.run([str(prepare()), "-m", "pip", "install", "--quiet", *LIBRARIES], cwd=TESTS, check=True)
    test(["--screenshots", str(TESTS / "test_pictures.py"), *arguments])


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser", description=__doc__)
    parser.add_argument("--prepare", action="store_true", help="only make the environment, and test nothing")
    parser.add_argument("--screenshots", action="store_true", help="make the documentation's pictures anew")
    args, rest = parser.parse_known_args()
    try:
        prepare() if args.prepare else make_pictures(rest) if args.screenshots else test(rest)
    except subprocess.CalledProcessError as error:  # of pip, the build or pytest, which has said why
        print(f"browser: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
