"""Environment of a kernel: allowed names of the server's, and what the caller sets.

A server's environment holds its secrets (its token, its Hub's, a cloud's). What a program needs in order to run at
all is let through by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache

from ..errors import InvalidRequest

DEFAULT_NAMES = [
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "LC_*"),
    *("TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "MPLBACKEND", "MPLCONFIGDIR"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERNAME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH"),
    *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES*", "NUMBER_OF_PROCESSORS", "PROCESSOR_*"),
]

# Jupyter's own: with them a caller could redirect where a kernel finds its parent, its configuration or its secrets.
_RESERVED = ("JPY_*", "JUPYTER_*", "JUPYTERHUB_*", "KG_*")


@lru_cache(16)  # the same few lists at every session's start
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) or "(?!)")


def inherited_environment(server_env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return what kernels get of the server's environment: the variables whose names match one of the patterns."""
    is_inherited = _any_of(tuple(names)).match
    return {name: value for name, value in server_env.items() if is_inherited(name)}


def kernel_environment(
    inherited: Mapping[str, str], caller_env: Mapping[str, str], *, caller_names: Iterable[str]
) -> dict[str, str]:
    """Return the whole environment of a new kernel.

    Parameters
    ----------
    inherited : mapping
        What it gets of the server's.
    caller_names : iterable of str
        Patterns of the names that a caller may set.

    Raises
    ------
    InvalidRequest
        Naming the first variable that the caller may not set.
    """
    allowed = tuple(caller_names)
    for name in caller_env:
        if _any_of(_RESERVED).match(name):
            raise InvalidRequest(f"'env' may not set {name!r}: names like {', '.join(_RESERVED)} are Jupyter's own")
        if not _any_of(allowed).match(name):
            names = ", ".join(allowed) or "none"
            raise InvalidRequest(f"'env' may not set {name!r}: this server lets callers set {names}")
    return {**inherited, **caller_env}
