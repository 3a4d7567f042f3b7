"""Checkpoint journal: records what happens to checkpoints in the audit trail, and publishes it in the change feed."""

from __future__ import annotations

from collections.abc import Sequence

from ...models import Checkpoint, CheckpointEvent, Session
from ..change_feed import BRANCHED, CHECKPOINT_DELETED, CHECKPOINTED, RESTORED, ChangeFeed
from ..ports import AuditTrail


class CheckpointJournal:
    """Audit records and feed events of checkpoints.

    Parameters
    ----------
    audit : AuditTrail
        Gets who has done it.
    feed : ChangeFeed
        Gets each event, for the callers that may see the session.
    """

    def __init__(self, audit: AuditTrail, feed: ChangeFeed) -> None:
        self._audit = audit
        self._feed = feed

    def record_creation(self, checkpoint: Checkpoint, owner: str, principal: str) -> None:
        """Record in the audit trail, and publish, that `principal` has made a checkpoint of a session of `owner`."""
        lost = [str(hindrance) for hindrance in checkpoint.lost]
        session_id = checkpoint.session_id
        about = {"checkpoint": checkpoint.id, "automatic": checkpoint.automatic, "lost": lost}
        self._audit.record("session", "checkpointed", principal, session_id, **about)
        self._publish(CHECKPOINTED, owner, checkpoint)

    def audit_restore_request(self, session_id: str, checkpoint_id: str, principal: str) -> None:
        """Record in the audit trail that `principal` has asked for a restore."""
        self._audit.record("session", "restore_asked", principal, session_id, checkpoint=checkpoint_id)

    def publish_restored(self, checkpoint: Checkpoint, owner: str) -> None:
        """Publish that a session has been restored to a checkpoint."""
        self._publish(RESTORED, owner, checkpoint)

    def audit_branch_request(self, session_id: str, checkpoint_id: str, count: int, principal: str) -> None:
        """Record in the audit trail that `principal` has asked for branches."""
        self._audit.record("session", "branch_asked", principal, session_id, checkpoint=checkpoint_id, count=count)

    def publish_branches(self, checkpoint: Checkpoint, branches: Sequence[Session]) -> None:
        """Publish that there are branches of a session; each is seen by those who may see the branch."""
        for branch in branches:
            self._publish(BRANCHED, branch.owner, checkpoint, branch)

    def audit_deletion(self, session_id: str, checkpoint_id: str, principal: str) -> None:
        """Record in the audit trail that `principal` has deleted a checkpoint."""
        self._audit.record("session", "checkpoint_deleted", principal, session_id, checkpoint=checkpoint_id)

    def audit_expiry(self, checkpoint: Checkpoint) -> None:
        """Record in the audit trail that a checkpoint was not used for too long."""
        self._audit.record("session", "checkpoint_expired", "", checkpoint.session_id, checkpoint=checkpoint.id)

    def audit_loss(self, checkpoint: Checkpoint) -> None:
        """Record in the audit trail that the process of a checkpoint has ended, which nobody asked for."""
        self._audit.record("session", "checkpoint_lost", "", checkpoint.session_id, checkpoint=checkpoint.id)

    def publish_deleted(self, checkpoint: Checkpoint, owner: str) -> None:
        """Publish that a live session has a checkpoint less, whatever has ended it."""
        self._publish(CHECKPOINT_DELETED, owner, checkpoint)

    def _publish(self, kind: str, owner: str, checkpoint: Checkpoint, branch: Session | None = None) -> None:
        if not self._feed.wanted:
            return
        event = CheckpointEvent(
            session_id=checkpoint.session_id if branch is None else branch.id,
            checkpoint_id=checkpoint.id,
            name=checkpoint.name,
            automatic=checkpoint.automatic,
            branch_of=None if branch is None else checkpoint.session_id,
        )
        self._feed.note_checkpoint(kind, event, owner)
