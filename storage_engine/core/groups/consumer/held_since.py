"""Since which of its epochs a member holds each of its partitions. Until it gives a partition up no
other member has it, so that a commit which was sent in any epoch since then is the owner's.

In no record: after a failover a partition counts from the newest record that has it on, which may
be later. Source: KIP-1251.
"""

from uuid import UUID

from storage_engine.core.groups.consumer.records import CurrentAssignmentRecord

_Epochs = dict[UUID, dict[int, int]]


class HeldSince:
    """Invariant: it has the partitions that a member has, or has yet to give up, and no others."""

    def __init__(self) -> None:
        self._epochs: dict[str, _Epochs] = {}

    def note(
        self,
        member_id: str,
        before: CurrentAssignmentRecord | None,
        record: CurrentAssignmentRecord | None,
    ) -> None:
        """Take up the next record about a member; None: it is gone."""
        known = self._epochs.pop(member_id, {})
        if record is None:
            return
        if before is None or not 0 < before.member_epoch <= record.member_epoch:
            # It comes back, and what it held before it went is another life's.
            known = {}
        epochs: _Epochs = {}
        for partitions in (record.assigned, record.pending_revocation):
            for topic_id, numbers in partitions.items():
                since = known.get(topic_id, {})
                found = {number: since.get(number, record.member_epoch) for number in numbers}
                epochs.setdefault(topic_id, {}).update(found)
        if epochs:
            self._epochs[member_id] = epochs

    def has_held(self, member_id: str, topic_id: UUID, partition: int, epoch: int) -> bool:
        """Return True when the member holds the partition without a break since that epoch."""
        since = self._epochs.get(member_id, {}).get(topic_id, {}).get(partition)
        return since is not None and since <= epoch
