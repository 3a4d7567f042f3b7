"""Policies that a server's settings configure: of a file, and of the settings themselves."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidRequest, PoliciesInvalid
from .built_in_policies import BUILT_IN
from .policy import Policy, matches
from .policy_parsing import read_policies, unknown_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def configured_policies(
    policies: Mapping[str, Any],
    policy_file: str,
    offered: Sequence[str] = ("*",),
    network_sets: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Policy]:
    """Return the policies that tokens can have, by name.

    Parameters
    ----------
    policies : mapping
        Policies as `EngineSettings.policies`.
    policy_file : str
        Path of a TOML or JSON file with more policies; empty for none.
    offered : sequence of str
        Names of the policies that tokens can have (with ``*`` as a wildcard).
    network_sets : mapping, optional
        Named sets of network rules, as `EngineSettings.network_sets`.

    Raises
    ------
    PoliciesInvalid
        If a policy or the file is invalid: a server must not run code under other limits than it was given. The message
        names the file without its directory, since it is sent to callers.
    """
    file = Path(policy_file)
    sets = {} if network_sets is None else network_sets
    known = _parse_policies(file.name, _read(file), sets) if policy_file else dict(BUILT_IN)
    configured = _parse_policies("ExecEngine.policies", policies, sets)
    # Only the configured names: `read_policies` also returns the built-in policies, which would undo the file's.
    known.update({name: configured[name] for name in policies})
    for name in offered:
        if not any(matches(policy, [name]) for policy in known):
            raise PoliciesInvalid(f"ExecEngine.offered_policies: {unknown_name('policy', name, list(known))}")
    return {name: policy for name, policy in known.items() if matches(name, offered)}


def _parse_policies(
    source: str, policies: Mapping[str, Any], network_sets: Mapping[str, Sequence[str]]
) -> dict[str, Policy]:
    try:
        return read_policies(policies, network_sets)
    except InvalidRequest as error:
        raise PoliciesInvalid(f"{source}: {error.message}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        found: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise PoliciesInvalid(f"{path.name}: the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PoliciesInvalid(f"{path.name}: the file is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        form = "TOML" if path.suffix == ".toml" else "JSON"
        raise PoliciesInvalid(f"{path.name}: the file is not valid {form}: {error}") from None
    if not isinstance(found, dict):
        raise PoliciesInvalid(f"{path.name}: the file must hold an object with policies by name")
    return found
