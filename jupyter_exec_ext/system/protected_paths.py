"""Registry of the server's own paths: isolated kernels never write them, and never read protected directories.

`assembly` adds the store's directory and the policy file, and `isolation.common.visible_files` enforces the protection.
The registry belongs to the process, because notebooks start isolated kernels, too.
"""

from __future__ import annotations

import os

_paths: dict[str, None] = {}


def protect_path(path: str | os.PathLike[str]) -> None:
    """Keep a directory or file from all isolated kernels that this process starts from now on.

    A link to it is kept from them as well: a kernel that can replace the link chooses the server's files.
    """
    given = os.path.abspath(path)
    link = os.path.join(os.path.realpath(os.path.dirname(given)), os.path.basename(given))
    _paths.update(dict.fromkeys((os.path.realpath(given), link)))


def protected_directories() -> list[str]:
    """Return the protected directories that exist; their content is secret."""
    return [path for path in list(_paths) if os.path.isdir(path)]


def protected_files() -> list[str]:
    """Return the protected files that exist: kernels may read those inside an installation, and never write them."""
    return [path for path in list(_paths) if os.path.isfile(path)]
