"""Program that downloads wheels with the server's pip, in a kernel's Python: pip runs no program there.

Run as ``python -I download_program.py PIP DIRECTORY MAX_BYTES ARGUMENT...``, where PIP is the directory of the package
``pip``, and the arguments are those of ``pip download``. The file ``report`` in DIRECTORY then has the unpacked size of
each wheel in ``wheels``.

A wheel's metadata can require an address, which ``--only-binary`` does not cover: pip would fetch it, build it and run
its code. So such requirements are refused while pip resolves. A pip in which that is not possible is not used. Hostile
archives are read here alone, within limits on memory. The process ends with the server, which may be killed. The Python
may be older than the server's.
"""

from __future__ import annotations

import email
import functools
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
import zipfile
import zlib
from typing import Any

_MAX_SECONDS = 180  # The server ends a download before: `wheel_download.DOWNLOAD_SECONDS`.
_PR_SET_PDEATHSIG = 1
_MAX_MEMORY_BYTES = 2 * 1024**3
_MAX_ENTRIES = 100_000  # of a wheel
_MAX_METADATA_BYTES = 4 * 1024**2
_STARTS = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn")


def main(pip_directory: str, directory: str, max_bytes: str, *arguments: str) -> int:
    """Download wheels, inspect them, and return an exit code."""
    _end_with_server()
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, int(max_bytes))
    if sys.platform == "linux":  # macOS does not know this limit
        _limit(resource.RLIMIT_AS, _MAX_MEMORY_BYTES)
    sys.addaudithook(_refuse_programs)
    _load_pip(pip_directory)
    run_pip = _guarded_pip()
    if run_pip is None:
        print(
            "ERROR: the server's pip cannot refuse addresses in metadata; ask for a current pip there", file=sys.stderr
        )
        return 1
    code = int(run_pip(["download", *arguments]))
    if code != 0:
        return code
    wheels = os.path.join(directory, "wheels")
    sizes = {}
    for name in sorted(os.listdir(wheels)):
        try:
            sizes[name] = _inspect_wheel(os.path.join(wheels, name))
        except (ValueError, OSError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            print(f"ERROR: {name[:100]} cannot be used: {error}", file=sys.stderr)
            return 1
    with open(os.path.join(directory, "report"), "w", encoding="utf-8") as written:
        json.dump(sizes, written)
    return 0


def _end_with_server() -> None:
    """End this process when the server's ends, and after some time at the latest."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_MAX_SECONDS)
    if sys.platform == "linux" and importlib.util.find_spec("_ctypes") is not None:  # some builds of Python have none
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0)))


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _refuse_programs(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to start programs, except those that find the platform's tags or the index's password.

    Raises
    ------
    PermissionError
        For all others; pip takes it as if they were missing.
    """
    if event == "subprocess.Popen":
        name = os.path.basename(os.fsdecode(arguments[0] or ""))
        if name == "keyring" or name.startswith("ld-musl-"):
            return
    elif event not in _STARTS:
        return
    raise PermissionError("programs may not be started during a download of packages")


def _load_pip(directory: str) -> None:
    """Make the package `pip` importable without its neighbours, which may be for another Python."""
    spec: Any = importlib.util.spec_from_file_location(
        "pip", os.path.join(directory, "__init__.py"), submodule_search_locations=[directory]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["pip"] = package
    spec.loader.exec_module(package)


def _guarded_pip() -> Any:
    """Return pip's main function, with requirements of metadata guarded; None if this pip has no place for that."""
    try:
        constructors: Any = importlib.import_module("pip._internal.req.constructors")
        original = constructors.install_req_from_req_string
        refusal = importlib.import_module("pip._internal.exceptions").InstallationError

        @functools.wraps(original)
        def guarded(*arguments: Any, **options: Any) -> Any:
            made = original(*arguments, **options)
            if made.link is not None or made.req is None or made.req.url is not None:
                raise refusal(f"{made} has an address; packages come from the index alone".replace("\n", " "))
            return made

        constructors.install_req_from_req_string = guarded
        # Imported only now, since this module copies the name.
        resolving: Any = importlib.import_module("pip._internal.cli.req_command")
        is_guarded = resolving.install_req_from_req_string is guarded
        run: Any = importlib.import_module("pip._internal.cli.main").main
    except (ImportError, AttributeError):
        return None
    return run if is_guarded else None


def _inspect_wheel(path: str) -> int:
    """Return the unpacked size of a wheel.

    Raises
    ------
    ValueError
        If it requires an address, or a bound is exceeded.
    zipfile.BadZipFile
        If it is damaged.
    """
    requirements: Any = importlib.import_module("pip._vendor.packaging.requirements")
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if len(entries) > _MAX_ENTRIES:
            raise ValueError(f"it has more than {_MAX_ENTRIES} files")
        for entry in entries:
            if not entry.filename.endswith(".dist-info/METADATA"):
                continue
            if entry.file_size > _MAX_METADATA_BYTES:
                raise ValueError(f"its metadata have more than {_MAX_METADATA_BYTES} bytes")
            for text in email.message_from_bytes(archive.read(entry)).get_all("Requires-Dist", []):
                found = requirements.Requirement(str(text))
                # Those of extras that were not asked for do no harm; pip would have refused the others.
                if found.url is not None and "extra" not in str(found.marker):
                    raise ValueError(f"it requires {found.name} with an address; packages come from the index alone")
        return sum(entry.file_size for entry in entries)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
