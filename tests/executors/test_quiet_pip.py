"""Code in which pip installs quietly; and what is none of it, which stays as it is."""

from __future__ import annotations

import pytest

from jupyter_exec_ext.executors.quiet_pip import quiet_pip


@pytest.mark.parametrize(
    ("code", "language", "quiet"),
    [
        ("!pip install x", "python", "!pip install -qq x"),
        ("! pip install x", "python", "! pip install -qq x"),
        ("%pip install x", "python", "%pip install -qq x"),
        ("!pip3 install x", "", "!pip3 install -qq x"),
        ("!python -m pip install x", "python", "!python -m pip install -qq x"),
        ("if True:\n    !pip install x\nprint(1)", "python", "if True:\n    !pip install -qq x\nprint(1)"),
        ("pip install x\npip install y", "bash", "pip install -qq x\npip install -qq y"),
        ("!pip install x", "sh", "!pip install -qq x"),
        ("!pip install x\n'''\n!pip install y\n'''", "python", "!pip install -qq x\n'''\n!pip install y\n'''"),
    ],
)
def test_installs_become_quiet(code: str, language: str, quiet: str) -> None:
    assert quiet_pip(code, language) == quiet


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("!pip install -q x", "python"),
        ("!pip install -v x", "python"),
        ("!pip install x --quiet", "python"),
        ("!pip list", "python"),
        ("print('!pip install x')", "python"),
        ("text = '''\n!pip install x\n'''", "python"),
        ('text = f"""{1}\n!pip install x\n"""', "python"),
        ("'''\n!pip install x", "python"),  # no Python at all
        ("!pip install x", "julia"),
        ("!pip installed", "python"),
        ("echo pip install x", "bash"),
    ],
)
def test_other_code_stays_as_it_is(code: str, language: str) -> None:
    assert quiet_pip(code, language) == code
