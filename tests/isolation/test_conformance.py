"""The kernels' own conformance suite gives the same result for a sandboxed kernel as for the plain one."""

from __future__ import annotations

import json
import os
import sys
import unittest
from pathlib import Path

import jupyter_kernel_test
import pytest

from tests.support.full import only_in_full

_ARGV = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
_KERNELS: dict[str, dict[str, object]] = {
    "plain": {},
    "sandboxed": {"kernel_provisioner": {"provisioner_name": "sandbox-provisioner", "config": {}}},
}


class Samples(jupyter_kernel_test.KernelTests):  # type: ignore[misc]  # it has no types
    """What the suite asks a Python kernel."""

    __test__ = False  # it is run below, for each kernel
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]  # noqa: RUF012  # as the suite has it
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]  # noqa: RUF012
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]  # noqa: RUF012
    invalid_code_samples = ["import = 7q"]  # noqa: RUF012
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = [{"code": "1+2+3", "result": "6"}]  # noqa: RUF012
    code_display_data = [  # noqa: RUF012
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"}
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"


def outcomes(kernel_name: str) -> dict[str, str]:
    """Run the suite on a kernel; return what became of each of its tests."""
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(
        type("Suite", (Samples,), {"kernel_name": kernel_name, "__module__": __name__})
    )
    names = {test.id() for test in suite}  # type: ignore[union-attr]
    result = unittest.TestResult()
    suite.run(result)
    found = dict.fromkeys(names, "passed")
    for outcome, tests in (("failed", result.failures), ("error", result.errors), ("skipped", result.skipped)):
        found.update({test.id(): outcome for test, _ in tests})
    return {name.rpartition(".")[2]: outcome for name, outcome in found.items()}


@pytest.mark.needs("sandbox")
@only_in_full
def test_a_sandboxed_kernel_conforms_as_the_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, metadata in _KERNELS.items():
        directory = Path(os.environ["JUPYTER_DATA_DIR"]) / "kernels" / name
        directory.mkdir(parents=True)
        spec = {"argv": _ARGV, "display_name": name, "language": "python", "metadata": metadata}
        (directory / "kernel.json").write_text(json.dumps(spec))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    plain = outcomes("plain")
    assert list(plain.values()).count("passed") >= 12, plain
    assert outcomes("sandboxed") == plain
