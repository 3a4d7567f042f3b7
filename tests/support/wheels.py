"""Small pure wheels, made by the tests: a module with a version, a program, and what it requires."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

_METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(
    directory: Path, name: str, version: str = "1.0", *, requires: Sequence[str] = (), size_bytes: int = 0
) -> Path:
    """Write a wheel; its module has `version`, and its program `NAME-version` prints that."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = _METADATA.format(name, version) + "".join(f"Requires-Dist: {other}\n" for other in requires)
    files = {
        f"{name}/__init__.py": f"version = {version!r}\n\n\ndef main():\n    print(version)\n",
        f"{name}/data.bin": "x" * size_bytes,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": _WHEEL,
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-version = {name}:main\n",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
        archive.writestr(f"{info}/RECORD", record)
    return path
