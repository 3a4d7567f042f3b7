"""Wheel of this package for the default container image, made from the installed files."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

_PACKAGE = "jupyter_exec_ext"
_WHEEL = "Wheel-Version: 1.0\nGenerator: jupyter_exec_ext\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
# The earliest date of the zip format: a fixed date makes the same content the same file.
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Wheel:
    """A wheel and its requirements, one a line as in pip's requirements files."""

    version: str
    file_name: str
    content: bytes
    requirements: str


def build_own_wheel() -> Wheel:
    """Return this package as a wheel. The same files give the same bytes.

    Raises
    ------
    ValueError
        If the package is not installed, so that its requirements are unknown.
    """
    try:
        installed = distribution("jupyter-exec-ext")
    except PackageNotFoundError as error:
        raise ValueError("the image gets the installed package, and none is; run: pip install .") from error
    requirements = [text for text in installed.requires or () if "extra" not in str(Requirement(text).marker)]
    name = f"{_PACKAGE}-{installed.version}"
    files = dict(_package_files(Path(__file__).parents[2]))
    files[f"{name}.dist-info/METADATA"] = (installed.read_text("METADATA") or "").encode()
    files[f"{name}.dist-info/entry_points.txt"] = (installed.read_text("entry_points.txt") or "").encode()
    files[f"{name}.dist-info/WHEEL"] = _WHEEL.encode()
    files[f"{name}.dist-info/RECORD"] = _record(files, f"{name}.dist-info/RECORD")
    return Wheel(installed.version, f"{name}-py3-none-any.whl", _zipped(files), "".join(f"{r}\n" for r in requirements))


def _package_files(package: Path) -> list[tuple[str, bytes]]:
    paths = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return [(path.relative_to(package.parent).as_posix(), path.read_bytes()) for path in sorted(paths)]


def _record(files: dict[str, bytes], own_name: str) -> bytes:
    lines = [f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items()]
    return "".join([*lines, f"{own_name},,\n"]).encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _FIXED_DATE)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_STORED)  # zlib's output differs between its versions
    return out.getvalue()
