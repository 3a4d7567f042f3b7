"""``jupyter exec file``: the files of a session."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..client.local_files import Progress
from .printable_text import printable
from .server_choice import client_for


def list_(args: argparse.Namespace) -> int:
    """Print the files, one a line."""
    with client_for(args) as client:
        files = client.get_session(args.session).list_files(args.path, sha256=args.sha256)
    for file in files:
        digest = f"  {file.sha256 or '-':64}" if args.sha256 else ""
        print(f"{file.size_bytes:>14}  {file.mtime}{digest}  {printable(file.path)}")
    if files.truncated:
        print("There are more; name a directory with --path.", file=sys.stderr)
    return 0


def upload(args: argparse.Namespace) -> int:
    """Upload a file."""
    with client_for(args) as client, progress_bar(args.file) as progress:
        client.get_session(args.session).upload(args.file, args.remote, progress=progress)
    return 0


def download(args: argparse.Namespace) -> int:
    """Download a file and print where it is."""
    with client_for(args) as client, progress_bar(args.remote) as progress:
        path = client.get_session(args.session).download(args.remote, args.local, progress=progress)
    print(path)
    return 0


def delete(args: argparse.Namespace) -> int:
    """Delete files."""
    with client_for(args) as client:
        session = client.get_session(args.session)
        for path in args.paths:
            session.delete_file(path)
    return 0


@contextmanager
def progress_bar(name: str) -> Iterator[Progress | None]:
    """Show how far a transfer is, where somebody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm  # loaded only where a bar is shown

    with tqdm(desc=printable(name)[-40:], unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr) as bar:

        def progress(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
