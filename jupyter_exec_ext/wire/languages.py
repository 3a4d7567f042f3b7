"""Which languages a kernel can be asked to run."""

from __future__ import annotations

from ..errors import LanguageNotSupported

_ALIASES = {
    "py": "python",
    "python3": "python",
    "ipython": "python",
    "ipython3": "python",
    "shell": "bash",
    "js": "javascript",
    "ts": "typescript",
}
# Shell cells in an IPython kernel; a failing script raises CalledProcessError there, so its failure is seen.
_IPYTHON_CELL_MAGICS = frozenset({"bash", "sh"})


def normalize_language(language: str) -> str:
    """Return the canonical lower-case name of a language as models and kernelspecs write it."""
    name = language.strip().lower()
    return _ALIASES.get(name, name)


def source_for_kernel(code: str, language: str | None, kernel_language: str) -> str:
    """Return what to send to a kernel so that it runs `code` in `language`.

    Parameters
    ----------
    language : str or None
        The code's language; None or empty means the kernel's own.
    kernel_language : str
        As in the kernelspec.

    Raises
    ------
    LanguageNotSupported
        If the kernel cannot run it.
    """
    wanted, own = normalize_language(language or kernel_language), normalize_language(kernel_language)
    if wanted == own:
        return code
    if own == "python" and wanted in _IPYTHON_CELL_MAGICS:
        return f"%%{wanted}\n{code}"
    can = ", ".join([own, *sorted(_IPYTHON_CELL_MAGICS)] if own == "python" else [own])
    raise LanguageNotSupported(
        f"this session's kernel runs {can}, not {wanted!r}; start a session with a kernelspec for that language"
    )
