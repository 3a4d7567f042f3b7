"""Which environment variables a sandboxed kernel gets. Pure.

A server's environment holds its secrets, and paths that a kernel cannot see. What somebody has chosen for the kernel
goes through: the engine, which marks that, or a kernelspec, or whoever starts a kernel with a variable of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from .launch_request import HOME, USER

#: Limits that a policy sets. They come this way since a kernel manager passes nothing else on to what starts kernels.
MEMORY_VARIABLE, CPU_VARIABLE = "JUPYTER_EXEC_MAX_MEMORY_BYTES", "JUPYTER_EXEC_MAX_CPU_SECONDS"
#: With it an environment was chosen by the engine, from what the server has and what the caller wants.
CHOSEN_MARK = "JUPYTER_EXEC_SESSION"

# Jupyter's own variables, but for what a kernel may know.
_JUPYTERS_OWN = ("JPY_*", "JUPYTER*", "KG_*")
_HARMLESS = ("JPY_SESSION_NAME", CHOSEN_MARK)
# They name places of this machine that a kernel does not see.
_PLACES = ("HOME", "TMPDIR", "TEMP", "TMP", "XDG_*", "IPYTHONDIR", "MPLCONFIGDIR", "PWD", "OLDPWD", "PYTHONPATH")
_INHERITED = (
    *("PATH", "TERM", "TZ", "LANG", "LANGUAGE", "LC_*", "MPLBACKEND", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("OPENBLAS_CORETYPE", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONUTF8", "PYTHONIOENCODING"),
)


def sandbox_environment(
    given: Mapping[str, str],
    server_env: Mapping[str, str],
    allowed_names: Iterable[str],
    kernelspec_names: Iterable[str],
    *,
    home: str = HOME,
) -> dict[str, str]:
    """Return the whole environment of a sandboxed kernel.

    Parameters
    ----------
    given : mapping of str to str
        What the kernel would get without a sandbox.
    server_env : mapping of str to str
        What the server has: a variable with the same value was inherited, and nobody's choice.
    allowed_names : iterable of str
        Patterns of names that may be inherited beside the usual ones.
    kernelspec_names : iterable of str
        What the kernelspec sets.
    home : str
        The kernel's own home directory.
    """
    chosen_by_engine = CHOSEN_MARK in given
    inheritable, chosen = [*_INHERITED, *allowed_names], set(kernelspec_names)

    def goes_in(name: str, value: str) -> bool:
        if _matches(name, _JUPYTERS_OWN) and name not in _HARMLESS:
            return False
        if name in chosen or server_env.get(name) != value:
            return True
        if _matches(name, _PLACES):
            return _matches(name, allowed_names)
        return chosen_by_engine or _matches(name, inheritable)

    kept = {name: value for name, value in given.items() if goes_in(name, value) and "\0" not in name + value}
    # Its parent ends the kernel: told that this is process 1, ipykernel neither watches it nor prints how to end it.
    fixed = {"HOME": home, "USER": USER, "LOGNAME": USER, "SHELL": "/bin/sh", "JPY_PARENT_PID": "1"}
    return {**fixed, **kept}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
