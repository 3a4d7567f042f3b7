"""Names of programming languages, and which of them a kernel can be asked to run.

Kernelspecs, models and kernels (``kernel_info``) call the same language by different names. `normalize_language` makes
one name of them.
"""

from __future__ import annotations

import re

from ..errors import LanguageNotSupported

_NAMES = {
    "bash": ("shell", "shellscript"),
    "c#": ("csharp", "cs", ".net (c#)"),
    "c++": ("cpp", "cxx", "cc"),
    "clojure": ("clj",),
    "f#": ("fsharp", "fs", ".net (f#)"),
    "go": ("golang",),
    "haskell": ("hs",),
    "javascript": ("js", "node", "nodejs", "ecmascript"),
    "julia": ("jl",),
    "kotlin": ("kt", "kts"),
    "perl": ("pl",),
    "powershell": ("pwsh", "ps1", "ps", ".net (powershell)"),
    "python": ("py", "pycon", "ipython"),
    "r": ("rscript",),
    "ruby": ("rb",),
    "rust": ("rs",),
    "sage": ("sagemath",),
    "typescript": ("ts",),
}
_CANONICAL = {alias: name for name, aliases in _NAMES.items() for alias in aliases}
# Such as C++17, python3.11, py3 and julia-1.10; Python 2 is another language.
_VERSION = re.compile(r"(?<=[a-z+#])[ -]?v?\d+(\.\d+)*$")
_PYTHON_2 = re.compile(r"i?py(thon)?[ -]?2(\.\d+)*")
# Kernels that run another language as well, since it is a subset of theirs.
_SUBSETS = {"bash": frozenset({"sh"}), "zsh": frozenset({"sh"}), "sage": frozenset({"python"})}
# Shell cells in an IPython kernel; a failing script raises CalledProcessError there, so its failure is seen.
_IPYTHON_CELL_MAGICS = frozenset({"bash", "sh"})
# ``!ls``: a command as IPython has it. For a shell it is none.
_IPYTHON_COMMAND = re.compile(r"^(\s*)!(?=[\w./~$])", re.MULTILINE)


def normalize_language(language: str) -> str:
    """Return the canonical lower-case name of a language as models, kernelspecs and kernels write it."""
    name = language.strip().lower()
    if _PYTHON_2.fullmatch(name):
        return name
    plain = _VERSION.sub("", name)
    # The whole name first: the digit of ``ps1`` is no version.
    return _CANONICAL.get(name) or _CANONICAL.get(plain, plain)


def source_for_kernel(code: str, language: str | None, kernel_language: str) -> str:
    """Return what to send to a kernel so that it runs `code` in `language`.

    Line ends of Windows become those of everywhere else, as in a notebook: a shell takes a carriage return for a part
    of the last word of its line.

    Parameters
    ----------
    code : str
        The source as the caller sent it.
    language : str or None
        The code's language; None or empty means the kernel's own.
    kernel_language : str
        As in the kernelspec or, where that names none, as the kernel itself says; empty if neither is known, and then
        the code is taken to be in it.

    Raises
    ------
    LanguageNotSupported
        If the kernel cannot run it.
    """
    code = code.replace("\r\n", "\n")
    wanted, own = normalize_language(language or kernel_language), normalize_language(kernel_language)
    if wanted == own or not own or wanted in _SUBSETS.get(own, ()):
        return code
    if own == "python" and wanted in _IPYTHON_CELL_MAGICS:
        if not code.strip():
            return ""  # a cell magic without a body is an error
        return f"%%{wanted}\n{_as_shell(code)}"
    can = ", ".join([own, *sorted(_IPYTHON_CELL_MAGICS if own == "python" else _SUBSETS.get(own, ()))])
    raise LanguageNotSupported(
        f"this session's kernel runs {can}, not {wanted!r}; start a session with a kernelspec for that language"
    )


def _as_shell(code: str) -> str:
    """Return a shell script; one whose commands are all written as IPython has them is without their marks."""
    commands = [line for line in code.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if commands and all(map(_IPYTHON_COMMAND.match, commands)):
        return _IPYTHON_COMMAND.sub(r"\1", code)
    return code
