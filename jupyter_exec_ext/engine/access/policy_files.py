"""The policies that an administrator has set, read and checked when the server starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from traitlets import TraitError

from ...auth.policy import Policy, matches
from ...auth.policy_parsing import read_policies
from ...errors import InvalidRequest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def configured_policies(
    policies: Mapping[str, Any], policy_file: str, offered: Sequence[str] = ("*",)
) -> dict[str, Policy]:
    """Return the policies that tokens can have, by name.

    Parameters
    ----------
    offered : sequence of str
        Their names (with ``*`` as a wildcard).

    Raises
    ------
    TraitError
        If one of them, or the file, cannot be read: a server with other limits than it was given must not start.
    """
    try:
        known = read_policies({**(_read(Path(policy_file)) if policy_file else {}), **policies})
    except InvalidRequest as error:
        raise TraitError(f"ExecEngine.policies: {error.message}") from None
    for name in offered:
        if not any(matches(policy, [name]) for policy in known):
            raise TraitError(f"ExecEngine.offered_policies: there is no policy {name!r}, only {', '.join(known)}")
    return {name: policy for name, policy in known.items() if matches(name, offered)}


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        found: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise TraitError(f"ExecEngine.policy_file: {path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise TraitError(f"ExecEngine.policy_file: {path} must hold an object with policies by name")
    return found
