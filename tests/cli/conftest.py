from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kernelspecs.places import Jupyter


@pytest.fixture
def jupyter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Jupyter:
    return Jupyter(tmp_path, capsys)
