"""Installer in kernels: it takes only wheels that are still those that the server chose."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from jupyter_exec_ext.in_kernel.package_environment import PackagesNotInstalled, _verify
from tests.support.wheels import make_wheel


def test_wheel_that_was_changed_or_removed_is_not_installed(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "one")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    _verify(str(wheel), sha256)
    make_wheel(tmp_path, "one", size_bytes=1)
    with pytest.raises(PackagesNotInstalled, match=r"one-1\.0-py3-none-any\.whl has changed"):
        _verify(str(wheel), sha256)
    wheel.unlink()
    with pytest.raises(PackagesNotInstalled, match="no longer in the server's cache"):
        _verify(str(wheel), sha256)
