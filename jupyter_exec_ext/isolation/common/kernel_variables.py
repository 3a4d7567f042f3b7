"""Selection of the environment variables of an isolated kernel. Pure.

A server's environment holds its secrets, and paths that a kernel cannot see. The kernel gets the variables that were
chosen for it: by the engine, which marks such an environment, by a kernelspec, or by the program that starts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from .launch_request import HOME, USER

#: Limits of a policy. They are variables, since a kernel manager passes only these on to a provisioner.
MEMORY_VARIABLE, CPU_VARIABLE = "JUPYTER_EXEC_MAX_MEMORY_BYTES", "JUPYTER_EXEC_MAX_CPU_SECONDS"
#: Mark of an environment that the engine has chosen from the server's and the caller's variables.
CHOSEN_MARK = "JUPYTER_EXEC_SESSION"

# Jupyter's own variables, and the exceptions that a kernel may have.
_JUPYTERS_OWN = ("JPY_*", "JUPYTER*", "KG_*")
_HARMLESS = ("JPY_SESSION_NAME", CHOSEN_MARK)
# Variables with paths of this machine that a kernel does not see.
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
    """Return the whole environment of an isolated kernel.

    Parameters
    ----------
    given : mapping of str to str
        Environment that the kernel would get without isolation.
    server_env : mapping of str to str
        Environment of the server: a variable with the same value was inherited, not chosen.
    allowed_names : iterable of str
        Patterns of further names that may be inherited.
    kernelspec_names : iterable of str
        Names that the kernelspec sets.
    home : str
        Home directory of the kernel.
    """
    chosen_by_engine = CHOSEN_MARK in given
    inheritable, chosen = [*_INHERITED, *allowed_names], set(kernelspec_names)

    def is_passed_on(name: str, value: str) -> bool:
        if _matches(name, _JUPYTERS_OWN) and name not in _HARMLESS:
            return False
        if name in chosen or server_env.get(name) != value:
            return True
        if _matches(name, _PLACES):
            return _matches(name, allowed_names)
        return chosen_by_engine or _matches(name, inheritable)

    kept = {name: value for name, value in given.items() if is_passed_on(name, value) and "\0" not in name + value}
    # The kernel ends with its parent process. With this value, ipykernel does not watch it or print how to end it.
    fixed = {"HOME": home, "USER": USER, "LOGNAME": USER, "SHELL": "/bin/sh", "JPY_PARENT_PID": "1"}
    return {**fixed, **kept}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
