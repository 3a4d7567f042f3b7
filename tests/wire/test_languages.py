from __future__ import annotations

import pytest

from jupyter_exec_ext.errors import LanguageNotSupported
from jupyter_exec_ext.wire.languages import source_for_kernel


@pytest.mark.parametrize(
    ("language", "kernel", "source"),
    [
        (None, "python", "code"),
        ("", "python", "code"),
        ("Python", "python", "code"),
        (" py ", "python", "code"),
        ("bash", "python", "%%bash\ncode"),
        ("shell", "python", "%%bash\ncode"),
        ("sh", "python", "%%sh\ncode"),
        ("R", "R", "code"),
        ("js", "javascript", "code"),
        ("bash", "bash", "code"),
    ],
)
def test_what_a_kernel_is_sent(language: str | None, kernel: str, source: str) -> None:
    assert source_for_kernel("code", language, kernel) == source


@pytest.mark.parametrize(("language", "kernel"), [("rust", "python"), ("python", "R"), ("bash", "R")])
def test_what_a_kernel_cannot_run_is_refused_with_what_it_can(language: str, kernel: str) -> None:
    with pytest.raises(LanguageNotSupported, match=kernel.lower()):
        source_for_kernel("code", language, kernel)
