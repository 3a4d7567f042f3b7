"""Named servers in ``jupyter_exec_config.toml``: read, add and remove profiles.

`local_servers` chooses a server where none is named. The file holds no secret: a profile has the path of a token file.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .local_files import write_whole_file
from .server_connection import JupyterConnectionInfo
from .trusted_files import WritableByOthersError, read_own_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "jupyter_exec_config.toml"
_TABLE = "profiles"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# `--server` has these words for other things.
_RESERVED = frozenset({"auto", "none", "localhost"})
_FIELD = re.compile(r"\s*[^#\[\s][^#]*=")
_FIELD_NAMES = ("server", "token_file", "ca_bundle")


class ProfileError(ValueError):
    """A profile is missing or invalid, or its file cannot be used."""


@dataclass(frozen=True, slots=True)
class ServerProfile:
    """A server under a name.

    Parameters
    ----------
    name : str
        Letters, digits, hyphens and underscores.
    server : str
        The server's URL, without a token.
    token_file : str, optional
        Absolute path of the file that holds the token.
    ca_bundle : str, optional
        Absolute path of the certificates to check the server with.
    """

    name: str
    server: str
    token_file: str | None = None
    ca_bundle: str | None = None

    def connection_info(self, token: str | None = None) -> JupyterConnectionInfo:
        """Return the connection of the server.

        Parameters
        ----------
        token : str, optional
            The token; by default that of the token file.

        Raises
        ------
        ProfileError
            If the token file cannot be read.
        """
        if token is None and self.token_file is not None:
            try:
                token = Path(self.token_file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ProfileError(
                    f"the token file {self.token_file} of the profile {self.name!r} cannot be read "
                    f"({_cause(error)}); create it, or remove the profile and add it with another file"
                ) from error
        return JupyterConnectionInfo.from_url(self.server, token, verify=self.ca_bundle or True)


def profiles_file() -> Path:
    """Return the path of the file, in Jupyter's configuration directory."""
    from jupyter_core.paths import jupyter_config_dir  # a client must start fast, and few need this

    return Path(jupyter_config_dir()) / FILE_NAME


def is_profile_name(text: str) -> bool:
    """Return whether a text can name a profile, rather than be the URL of a server."""
    return _NAME.fullmatch(text) is not None and text not in _RESERVED


def find_profile(name: str) -> ServerProfile:
    """Return the profile with this name.

    Raises
    ------
    ProfileError
        If there is none, or the file cannot be used.
    """
    profiles = read_profiles()
    if name in profiles:
        return profiles[name]
    close = difflib.get_close_matches(name, profiles, n=1)
    guess = f"; did you mean {close[0]!r}?" if close else ";"
    raise ProfileError(
        f"there is no profile {name!r}{guess} 'jupyter exec profile list' lists them; a word without a dot, a colon "
        f"or a slash names a profile, so for a machine of this name write http://{name}/"
    )


def read_profiles() -> dict[str, ServerProfile]:
    """Return all profiles by name; none if there is no file.

    Raises
    ------
    ProfileError
        If the file cannot be read, is not TOML, or has a wrong profile; with the file, its line and the remedy.
    """
    file = profiles_file()
    text = _read_own_text(file)
    table = _parse(text, file).get(_TABLE, {})
    if not isinstance(table, dict):
        raise _problem(file, _line_of(text, _TABLE), f"{_TABLE!r} is no table; write [{_TABLE}.NAME]")
    return {name: _profile(name, fields, text, file) for name, fields in table.items()}


def add_profile(profile: ServerProfile) -> Path:
    """Add a profile to the file, which is created with mode 0600, and return the file's path.

    Raises
    ------
    ProfileError
        If the name is taken or cannot be one, the URL holds a token, or the file cannot be used.
    ValueError
        If the server is no URL.
    """
    file = profiles_file()
    if not is_profile_name(profile.name):
        raise ProfileError(
            f"{profile.name!r} cannot name a profile; use letters, digits, - and _, and none of the words "
            f"{', '.join(sorted(_RESERVED))}"
        )
    info = JupyterConnectionInfo.from_url(profile.server)
    if info.token is not None:
        raise ProfileError(
            "the URL holds a token, which profiles do not keep; write the token into a file, and name that with "
            "--token-file"
        )
    if profile.name in read_profiles():
        raise ProfileError(
            f"there is a profile {profile.name!r} already; remove it with 'jupyter exec profile remove {profile.name}'"
        )
    fields = {"server": info.url, "token_file": profile.token_file, "ca_bundle": profile.ca_bundle}
    lines = [f"{field} = {_quoted(value)}" for field, value in fields.items() if value is not None]
    text = _read_own_text(file)
    block = "\n".join([f"[{_TABLE}.{profile.name}]", *lines]) + "\n"
    _write(file, f"{text.rstrip()}\n\n{block}" if text.strip() else block)
    return file


def remove_profile(name: str) -> Path:
    """Remove a profile from the file, leave the rest of it unchanged, and return the file's path.

    Raises
    ------
    ProfileError
        If there is no such profile, or the file cannot be used.
    """
    find_profile(name)
    file = profiles_file()
    text = _read_own_text(file)
    lines = text.splitlines(keepends=True)
    begin = _line_of(text, name) - 1
    header = next((n for n in range(begin + 1, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    # Up to the last field: comments before the next header belong to that.
    end = max((n + 1 for n in range(begin, header) if _FIELD.match(lines[n])), default=begin + 1)
    rest = "".join(lines[:begin] + lines[end:])
    # A person may have written it in another of TOML's forms, such as an inline table.
    try:
        is_removed = tomllib.loads(rest) == _without(tomllib.loads(text), name)
    except tomllib.TOMLDecodeError:
        is_removed = False
    if not is_removed:
        raise _problem(file, begin + 1, f"the profile {name!r} has another form than a table; remove it in an editor")
    _write(file, rest)
    return file


def _without(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    profiles = {other: fields for other, fields in document[_TABLE].items() if other != name}
    rest = {key: value for key, value in document.items() if key != _TABLE}
    return rest | ({_TABLE: profiles} if profiles else {})


def _profile(name: str, fields: Any, text: str, file: Path) -> ServerProfile:
    line = _line_of(text, name)
    if not is_profile_name(name):
        raise _problem(file, line, f"{name!r} cannot name a profile; use letters, digits, - and _")
    if not isinstance(fields, dict) or not isinstance(fields.get("server"), str):
        raise _problem(
            file, line, f'the profile {name!r} has no server; add a line such as server = "http://host:8888/"'
        )
    for field, value in fields.items():
        if field not in _FIELD_NAMES:
            raise _problem(
                file, line, f"the profile {name!r} has an unknown field {field!r}; use {', '.join(_FIELD_NAMES)}"
            )
        if not isinstance(value, str):
            raise _problem(file, line, f"{field!r} of the profile {name!r} is no text; put it into quotes")
    try:
        info = JupyterConnectionInfo.from_url(fields["server"])
    except ValueError as error:
        raise _problem(file, line, f"the server of the profile {name!r} cannot be used: {error}") from error
    if info.token is not None:
        raise _problem(file, line, f"the URL of the profile {name!r} holds a token; move it to a file, as token_file")
    return ServerProfile(name, fields["server"], fields.get("token_file"), fields.get("ca_bundle"))


def _parse(text: str, file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        cause, _, place = str(error).rpartition(" (at ")
        found = re.match(r"line (\d+)", place)
        line = int(found[1]) if found else text.count("\n") + 1
        raise _problem(file, line, f"this is not TOML: {cause or error}; correct the line") from error
    return document


def _problem(file: Path, line: int, sentence: str) -> ProfileError:
    return ProfileError(f"{file}, line {line}: {sentence}")


def _line_of(text: str, name: str) -> int:
    """Return the number of the line with the header of a profile or, without one, its first line as a key; else 1."""
    quoted = rf"""["']?{re.escape(name)}["']?"""
    for pattern in (rf"\s*\[\s*{_TABLE}\s*\.\s*{quoted}\s*\]", rf"\s*\[?\s*{quoted}\s*[\]=.]"):
        for number, line in enumerate(text.splitlines(), 1):
            if re.match(pattern, line):
                return number
    return 1


def _quoted(text: str) -> str:
    # JSON escapes as TOML does, but for this one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read_own_text(file: Path) -> str:
    """Return the file's text; an empty one if there is no file. The file says where tokens are sent."""
    try:
        return read_own_text(file, allow_root=True)
    except WritableByOthersError as error:
        raise ProfileError(
            f"{error}, and it says where tokens are sent; check it, and then run: chmod 600 {file}"
        ) from error
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{file} cannot be read ({_cause(error)}); correct or remove it") from error


def _write(file: Path, text: str) -> None:
    """Replace the file in one step, with mode 0600."""
    target = file.resolve()  # it may be a link into a directory of configuration files
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole_file(target, text.encode(), 0o600)
    except OSError as error:
        raise ProfileError(f"{file} cannot be written ({_cause(error)})") from error


def _cause(error: OSError | UnicodeDecodeError) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
