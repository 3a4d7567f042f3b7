"""Endpoint module: whether the SDK is there is found out without its import."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
from jupyter_exec_ext.mcp.endpoint import is_installed
print(is_installed(), any(name.split('.')[0] in ('mcp', 'mcp_types') for name in sys.modules))
"""


def test_question_whether_the_sdk_is_there_imports_nothing_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
