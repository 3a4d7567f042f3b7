"""``jupyter exec output``: what an execution printed and showed beyond its cap."""

from __future__ import annotations

import argparse
import sys

from ..models import Execution
from .file_command import progress_bar
from .printable_text import printable
from .server_choice import client_for


def list_(args: argparse.Namespace) -> int:
    """Print what there is, one a line, and why it is not everything."""
    with client_for(args) as client:
        record = client.get_execution(args.execution).record
    for output in record.spooled:
        note = "" if output.complete else "  (only the beginning)"
        print(f"{output.size_bytes:>14}  {output.name:24}  {printable(output.mime_type)}{note}")
    if record.truncated is not None and record.truncated.unspooled_reason:
        print(f"jupyter exec: not everything was kept: {record.truncated.unspooled_reason}", file=sys.stderr)
    return 0


def download(args: argparse.Namespace) -> int:
    """Download an output and print where it is."""
    with client_for(args) as client, progress_bar(args.name) as progress:
        path = client.get_execution(args.execution).download_output(args.name, args.local, progress=progress)
    print(path)
    return 0


def hint(execution: Execution) -> str | None:
    """Return how to get what was left out of what `run` shows, if it is kept."""
    if not execution.spooled:
        return None
    names = ", ".join(output.name for output in execution.spooled[:10])
    return f"the output left out is kept: jupyter exec output download {execution.id} NAME (of {names})"
