"""How much may be stored in a session's directory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...auth.policy import Policy, least


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits on uploads; None for no limit. See the traits, and the fields of a policy, of the same names."""

    max_file_bytes: int | None = None
    max_session_bytes: int | None = None
    max_session_files: int | None = None

    def within(self, other: FileLimits) -> FileLimits:
        """Return the limits that keep to both."""
        return FileLimits(
            least((self.max_file_bytes, other.max_file_bytes)),
            least((self.max_session_bytes, other.max_session_bytes)),
            least((self.max_session_files, other.max_session_files)),
        )


NO_LIMITS = FileLimits()


def limits_of(policies: Iterable[Policy]) -> FileLimits:
    """Return what all of these policies allow."""
    limits = NO_LIMITS
    for policy in policies:
        limits = limits.within(FileLimits(policy.max_file_bytes, policy.max_session_bytes, policy.max_session_files))
    return limits
