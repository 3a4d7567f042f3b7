"""Quotas on the files of a session: limits, and the usage with uploads under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ...auth.policy import Policy
from ...errors import QuotaExceeded
from ..ports import NO_LIMITS, FileLimits


def limits_of(policies: Iterable[Policy]) -> FileLimits:
    """Return the strictest limits of these policies."""
    limits = NO_LIMITS
    for policy in policies:
        limits = limits.within(FileLimits(policy.max_file_bytes, policy.max_session_bytes, policy.max_session_files))
    return limits


class UnderWay(Protocol):
    """A file that is being written."""

    size_bytes: int | None
    received_bytes: int
    replaces: bool
    replaced_bytes: int


@dataclass(slots=True)
class Usage:
    """Contents of a session's directory, and the uploads that are about to be added."""

    stored_bytes: int = 0
    stored_files: int = 0
    under_way: dict[str, UnderWay] = field(default_factory=dict)
    # Held while the directory is measured and while a file is put into it, or one could count twice.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def check(self, upload: UnderWay, limits: FileLimits) -> None:
        """Check an upload under way against the limits.

        Raises
        ------
        QuotaExceeded
            If the file is too large, or the session's files would be too large or too many.
        """
        most = limits.max_file_bytes
        if most is not None and max(upload.received_bytes, upload.size_bytes or 0) > most:
            raise QuotaExceeded(f"a file may have at most {most} bytes (max_file_bytes)")
        coming = sum(max(u.received_bytes, u.size_bytes or 0) - u.replaced_bytes for u in self.under_way.values())
        if limits.max_session_bytes is not None and self.stored_bytes + coming > limits.max_session_bytes:
            raise QuotaExceeded(
                f"the session's files may have at most {limits.max_session_bytes} bytes together (max_session_bytes)"
            )
        new = sum(not upload.replaces for upload in self.under_way.values())
        if limits.max_session_files is not None and self.stored_files + new > limits.max_session_files:
            raise QuotaExceeded(f"a session may have at most {limits.max_session_files} files (max_session_files)")
