"""``jupyter exec audit``: verifies and shows the audit trail of the servers on this machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir

from ..audit.digest_chain import ChainedLine, Head, format_record, verify
from ..errors import StoreUnavailable
from ..models import ChainEnds
from ..store.audit_table import AuditReader
from .common_options import add_command, add_command_group, add_json_option, print_json
from .messages import UsageError

_FOLLOW_SECONDS = 0.5
_MAX_FAULTS_SHOWN = 100


def _head(text: str) -> Head:
    return Head.parse(text)


# argparse shows this name in its message; a bound method such as `Head.parse` has none that can be set.
_head.__name__ = "head (SEQ:DIGEST)"


def add_audit_command(commands: Any) -> None:
    """Add ``jupyter exec audit``."""
    actions = add_command_group(
        commands, "audit", "check and show the audit trail", "The audit trail of the servers on this machine."
    )
    verify = add_command(actions, "verify", "check that no record was removed, changed or reordered", verify_trail)
    tail = add_command(actions, "tail", "show the newest records", show_tail)
    for action in (verify, tail):
        action.add_argument("--store", metavar="DIR", help="the directory of ExecStore.path (default: the usual one)")
    add_json_option(verify)
    verify.add_argument("--head", type=_head, metavar="SEQ:DIGEST", help="a head that an earlier check printed")
    verify.epilog = "Exit code: 0 if the trail is whole, 1 if not. Keep the head that is printed on another machine."
    tail.add_argument("-n", type=int, default=20, dest="count", metavar="N", help="how many records (default: 20)")
    tail.add_argument("--follow", action="store_true", help="and those to come, until Ctrl-C")
    tail.add_argument("--json", action="store_true", help="the whole records, as JSON")


@contextmanager
def _reader(args: argparse.Namespace) -> Iterator[AuditReader]:
    reader = AuditReader(Path(args.store or Path(jupyter_data_dir()) / "jupyter_exec_ext"))
    try:
        yield reader
    finally:
        reader.close()


def verify_trail(args: argparse.Namespace) -> int:
    """Verify the whole chain, and print its faults or its head."""
    faults: list[str] = []
    count = 0
    try:
        # One read transaction, since a running server appends records and removes old ones meanwhile.
        with _reader(args) as reader, reader.snapshot() as (ends, lines):
            for fault in verify(lines, ends, args.head):
                count += 1
                if count <= _MAX_FAULTS_SHOWN:
                    faults.append(fault)
    except StoreUnavailable as error:
        return _print_verdict(args, [error.message], 1, None)
    return _print_verdict(args, faults, count, ends)


def _print_verdict(args: argparse.Namespace, faults: Sequence[str], count: int, ends: ChainEnds | None) -> int:
    """Print the result; the trail has no ends where there is none."""
    first, last = (ends.first_seq, ends.last_seq) if ends is not None else (1, 0)
    head = str(Head(ends.last_seq, ends.last_digest)) if ends is not None and not count else None
    if args.json:
        # Retention removes the oldest records, so a whole trail may begin later than at 1.
        verdict = {"whole": not count, "records": last - first + 1, "first_seq": first, "head": head}
        print_json(verdict | {"faults": list(faults), "fault_count": count})
    else:
        for fault in faults:
            print(fault)
        if count and ends is not None:
            print(f"the audit trail is not whole: {count} faults")
        elif not count:
            print(f"the audit trail is whole: {last - first + 1} records" + (f", from {first}" if first > 1 else ""))
            print(f"head {head}")
    return 1 if count else 0


def show_tail(args: argparse.Namespace) -> int:
    """Print the newest records; with ``--follow``, those to come."""
    if args.count < 0:
        raise UsageError("-n must not be negative")
    with _reader(args) as reader:
        lines = reader.newest(args.count)
        last_seq = lines[-1].seq if lines else reader.last_seq()
        while True:
            for line in lines:
                print(_shown(line, as_json=args.json), flush=args.follow)
            if not args.follow:
                return 0
            time.sleep(_FOLLOW_SECONDS)  # the store cannot notify another process of a new record
            lines = reader.after(last_seq)
            last_seq = lines[-1].seq if lines else last_seq


def _shown(line: ChainedLine, *, as_json: bool) -> str:
    try:
        record = line.record()
    except ValueError:
        return f"record {line.seq} was changed: it is no record"
    if as_json:
        # Spliced into the stored text, since the digest is that of its exact bytes.
        return f'{line.line[:-1]},"digest":"{line.digest}"}}'
    return format_record(record)
