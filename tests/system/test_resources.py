"""Whether a process writes again to memory that it has freed, in a process of its own, since it cannot be undone."""

from __future__ import annotations

import platform
import subprocess
import sys
from textwrap import dedent

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's malloc")

# What a picture of 4 MB is on its way: a few blocks of that size, gone when it has passed.
COUNTING = """
import resource

def faults_of_a_picture():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    copies = [b"x" * 5_500_000 for _ in range(4)]
    del copies
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of_a_picture(), faults_of_a_picture()
print(faults_of_a_picture())
"""
PAGES_OF_ONE = 5_500_000 // 4096


def faults_after(code: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", dedent(code) + COUNTING], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


def test_freed_memory_is_kept() -> None:
    assert faults_after("") > 3 * PAGES_OF_ONE
    assert (
        faults_after("""
        from jupyter_exec_ext.system.resources import keep_freed_memory
        keep_freed_memory()
    """)
        < PAGES_OF_ONE / 10
    )


@pytest.mark.parametrize(("body_bytes", "kept"), [(1000, False), (2_000_000, True)])
def test_a_client_keeps_it_once_it_has_had_a_large_answer(body_bytes: int, kept: bool) -> None:
    faults = faults_after(f"""
        from jupyter_exec_ext.client.api.answers import parsed
        from jupyter_exec_ext.client.api.steps import Reply
        parsed(Reply(200, {{}}, b'"' + b"x" * {body_bytes} + b'"'))
    """)
    assert (faults < PAGES_OF_ONE / 10) is kept


def test_memory_that_cannot_be_had_is_done_without() -> None:
    faults_after("""
        import resource
        from jupyter_exec_ext.system import resources
        resources.BLOCK_BYTES = 1 << 62
        resources.keep_freed_memory()
    """)
