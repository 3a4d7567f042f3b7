from __future__ import annotations

import pytest

from jupyter_exec_ext.errors import LanguageNotSupported
from jupyter_exec_ext.protocol.languages import normalize_language, source_for_kernel


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
        ("sh", "bash", "code"),
        ("python3", "sage", "code"),
        ("rust", "", "code"),
    ],
)
def test_what_a_kernel_is_sent(language: str | None, kernel: str, source: str) -> None:
    assert source_for_kernel("code", language, kernel) == source


@pytest.mark.parametrize(
    ("language", "kernel"),
    [("rust", "python"), ("python", "R"), ("bash", "R"), ("bash", "sage"), ("python2", "python"), ("c", "c++")],
)
def test_what_a_kernel_cannot_run_is_refused_with_what_it_can(language: str, kernel: str) -> None:
    with pytest.raises(LanguageNotSupported) as refused:
        source_for_kernel("code", language, kernel)
    assert kernel.lower() in refused.value.message


@pytest.mark.parametrize(
    ("canonical", "names"),
    [
        ("python", ["Python", "py", "py3", "python3", "python3.11", "Python 3", "ipython3", "pycon", "python-3.12.1"]),
        ("c++", ["C++", "cpp", "C++17", "cpp20", "CXX", "c++ 23", "cc"]),
        ("c#", ["C#", "csharp", "cs", "c#12"]),
        ("rust", ["Rust", "rs"]),
        ("julia", ["Julia", "jl", "julia-1.10", "Julia 1.9.3"]),
        ("javascript", ["JS", "node", "nodejs", "node20", "ECMAScript"]),
        ("r", ["R", "Rscript", "R 4.3"]),
        ("go", ["Go", "golang"]),
        ("bash", ["Bash", "shell", "shellscript"]),
        ("powershell", ["pwsh", "PowerShell", "ps1"]),
        ("python2.7", ["Python2.7"]),
        ("sh", ["sh"]),
    ],
)
def test_names_of_one_language_are_one_name(canonical: str, names: list[str]) -> None:
    assert {normalize_language(name) for name in names} == {canonical}


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        ('!echo "hi"', 'echo "hi"'),
        ("!ls\n\n# all\n  !./run", "ls\n\n# all\n  ./run"),
        ("! grep -q x file", "! grep -q x file"),  # a shell's own negation
        ("!echo a\necho b", "!echo a\necho b"),
        ("cat <<END\n!important\nEND", "cat <<END\n!important\nEND"),
        ("#!/bin/bash\necho a", "#!/bin/bash\necho a"),
    ],
)
def test_commands_as_ipython_has_them_are_commands_of_a_shell(code: str, sent: str) -> None:
    assert source_for_kernel(code, "bash", "python") == f"%%bash\n{sent}"


@pytest.mark.parametrize("language", ["bash", "sh", "python", "R", None])
def test_windows_line_ends_do_not_reach_the_kernel(language: str | None) -> None:
    kernel = "R" if language == "R" else "python"
    assert source_for_kernel("a\r\nb\r\n", language, kernel).endswith("a\nb\n")
