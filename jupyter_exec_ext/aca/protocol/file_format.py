"""Files in the ACA protocol: their paths in addresses and uploads, and their descriptions, in both families."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from ...errors import InvalidRequest, UnexpectedAnswer
from ...models import FileInfo
from ...protocol.file_requests import path_parts
from .addresses import DATA_DIRECTORY, Family

_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_DIRECTORY_BYTES = 4096  # the reported size of every directory
_TIME_CHARACTERS = len("2026-01-02T03:04:05.1234567")
# The characters of a quoted name, escapes included.
_QUOTED_NAME = re.compile(r"[A-Za-z0-9\-._~%!$&'()*+,;=:@]*")


@dataclass(frozen=True, slots=True)
class ACAFile:
    """A file or directory of a session.

    Parameters
    ----------
    path : str
        Relative to ``/mnt/data``.
    size_bytes : int
        Size of the content.
    last_modified : str
        UTC time in ISO 8601, with as many digits as the service gives.
    content_type : str
        MIME type; empty if the service gives none.
    is_directory : bool
        Whether it is a directory.
    """

    path: str
    size_bytes: int = 0
    last_modified: str = ""
    content_type: str = ""
    is_directory: bool = False


def relative_path(name: str) -> str:
    """Return a file's path relative to ``/mnt/data``; raises `InvalidRequest` if it leads elsewhere."""
    # With its slash, the prefix does not match `/mnt/database/x`, which is refused below.
    path = name.removeprefix(f"{DATA_DIRECTORY}/") if name.startswith("/") else name
    if path.startswith("/"):
        raise InvalidRequest(f"{name[:200]!r} is not below {DATA_DIRECTORY}")
    return "/".join(path_parts(path))


def path_of_form_name(name: str, directory: str = "") -> str:
    """Return the path of an uploaded file from the name in its part of the form.

    Some clients quote the name (aiohttp does). A quoted name has escapes, and no character that needs one.
    """
    if _ESCAPE.search(name) and _QUOTED_NAME.fullmatch(name):
        with suppress(UnicodeDecodeError):  # escapes that are not UTF-8 are part of the name
            name = unquote(name, errors="strict")
    return join_path(directory, name)


def relative_directory(directory: str) -> str:
    """Return a directory's path relative to ``/mnt/data``, empty for that directory; raises `InvalidRequest`."""
    inside = directory.strip().rstrip("/")
    return "" if inside in ("", DATA_DIRECTORY, ".") else relative_path(inside)


def join_path(directory: str, name: str) -> str:
    """Return the path of a file in a directory, from the names that a client gives."""
    inside = relative_directory(directory)
    return relative_path(f"{inside}/{relative_path(name)}") if inside else relative_path(name)


def file_of(info: FileInfo) -> ACAFile:
    """Return the description of a file for ACA clients."""
    text = info.mime_type.startswith("text/")
    return ACAFile(
        path=info.path,
        size_bytes=info.size_bytes,
        # Our times have three digits of the second, the service's seven.
        last_modified=info.mtime.removesuffix("Z").ljust(_TIME_CHARACTERS, "0") + "Z",
        content_type=f"{info.mime_type}; charset=utf-8" if text else info.mime_type,
    )


def files_in(files: Iterable[FileInfo], directory: str) -> list[ACAFile]:
    """Return the entries of a directory, from all files below it: its files, and directories with further files."""
    found: dict[str, ACAFile] = {}
    start = f"{directory}/" if directory else ""
    for info in files:
        name, below, _ = info.path.removeprefix(start).partition("/")
        file = file_of(info)
        if not below:
            found[name] = file
        # All times have the same form, so they compare as text.
        elif name not in found or found[name].last_modified < file.last_modified:
            found[name] = ACAFile(start + name, _DIRECTORY_BYTES, file.last_modified, is_directory=True)
    return list(found.values())


def content_address(path: str, family: Family) -> tuple[str, dict[str, str]]:
    """Return the address of a file's content: the quoted path below the endpoint, and query parameters."""
    if family is Family.ENVELOPE:
        return f"files/content/{quote(relative_path(path), safe='/')}", {}
    file, query = file_address(path, family)
    return f"{file}/content", query


def file_address(path: str, family: Family) -> tuple[str, dict[str, str]]:
    """Return the address of a file itself, as `content_address` does."""
    if family is Family.ENVELOPE:
        return f"files/{quote(relative_path(path), safe='/')}", {}
    # In the flat family the directory is a parameter, so the name is a single segment.
    directory, _, name = relative_path(path).rpartition("/")
    return f"files/{quote(name, safe='')}", {"path": directory} if directory else {}


def upload_address(path: str, family: Family) -> tuple[str, dict[str, str], str]:
    """Return the address for an upload, as `content_address` does, and the file's name in the form."""
    checked = relative_path(path)
    if family is Family.ENVELOPE:
        return "files/upload", {}, checked
    directory, _, name = checked.rpartition("/")
    return "files", {"path": directory} if directory else {}, name


def file_to_json(file: ACAFile, family: Family, *, first_id: int = 1) -> dict[str, Any]:
    """Return the description of one file. The envelope family numbers its objects, here from `first_id` on."""
    if family is Family.ENVELOPE:
        return {
            "$id": str(first_id),
            "properties": {
                "$id": str(first_id + 1),
                "filename": file.path,
                "size": file.size_bytes,
                "lastModifiedTime": file.last_modified,
            },
        }
    directory, _, name = file.path.rpartition("/")
    return {
        "name": name,
        "type": "directory" if file.is_directory else "file",
        "contentType": file.content_type,
        "sizeInBytes": file.size_bytes,
        "lastModifiedAt": file.last_modified,
        "directory": directory,
    }


def files_to_json(files: list[ACAFile], family: Family) -> dict[str, Any]:
    """Return the description of a list of files."""
    if family is Family.ENVELOPE:
        value = [file_to_json(file, family, first_id=2 + 2 * at) for at, file in enumerate(files)]
        return {"$id": "1", "value": value}
    return {"value": [file_to_json(file, family) for file in files]}


def file_from_json(data: Any, directory: str = "") -> ACAFile:
    """Read the description of one file, of either family; raises `UnexpectedAnswer` if it has no name."""
    inner = data.get("properties") if isinstance(data, dict) else None
    fields = inner if isinstance(inner, dict) else data
    # The envelope family's names come first, the flat family's second.
    name = fields.get("filename", fields.get("name")) if isinstance(fields, dict) else None
    if not isinstance(name, str) or not name:
        raise UnexpectedAnswer("the service told of a file without a name")
    size = fields.get("size", fields.get("sizeInBytes"))
    inside = fields.get("directory")
    place = inside if isinstance(inside, str) and inside else directory
    path = name.removeprefix(f"{DATA_DIRECTORY}/")
    place = place.removeprefix(DATA_DIRECTORY).strip("/")
    return ACAFile(
        path=f"{place}/{path}" if place and "/" not in path else path,  # with a slash, it has its directory
        size_bytes=size if isinstance(size, int) else 0,
        last_modified=str(fields.get("lastModifiedTime") or fields.get("lastModifiedAt") or ""),
        content_type=str(fields.get("contentType") or ""),
        is_directory=str(fields.get("type") or "").lower() == "directory",
    )


def files_from_json(data: Any, directory: str = "") -> tuple[list[ACAFile], str | None]:
    """Read a list of files, and the address of its next page, None for the last; raises `UnexpectedAnswer`."""
    value = data.get("value") if isinstance(data, dict) else data
    if not isinstance(value, list):
        raise UnexpectedAnswer(
            "the service answered a file list with something else; is this a session pool's endpoint?"
        )
    following = data.get("nextLink") if isinstance(data, dict) else None
    files = [file_from_json(item, directory) for item in value]
    return files, following if isinstance(following, str) and following else None
