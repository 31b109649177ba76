"""The offsets that a group has committed, by its coordinator's log, and the check that its readers
get them.

Each commit of offsets has a unique name in its metadata. Of two offsets of a partition the one that
was written later counts, one of a transaction only once the transaction's marker is committed; so
what was read in an aborted transaction's time is never an offset of it. There is no guarantee once
all replicas of the log lost their power. Source: KIP-98, KIP-447.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from simulation.checks.copies import BatchNote
from simulation.checks.ledger import InvariantViolation, PartitionRecord
from simulation.transactions.ledger import ObservedTransaction
from storage_engine.core.groups.records import OffsetKey, OffsetRecord
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, TopicPartition
from storage_engine.protocol.state.group_records import FIELDS, decode_key, decode_record
from storage_engine.protocol.state.state_batches import iter_raw

GROUP = "group"
GROUP_STATE = TopicPartition(GROUP_OFFSETS_TOPIC, 0)
"""The only partition of that topic."""
NOWHERE = -1


@dataclass(slots=True, eq=False)
class OffsetCommit:
    """One commit of offsets, with a transaction or without."""

    name: str
    offsets: Mapping[TopicPartition, int]
    transaction: ObservedTransaction | None
    is_answered: bool = False
    is_logged: bool = False
    places: dict[TopicPartition, int] = field(default_factory=dict)
    """By partition its place in the log, if it counts: it was not part of a transaction, or of one
    that is committed."""

    @property
    def counts(self) -> bool:
        return bool(self.places)


@dataclass(slots=True)
class _Offset:
    """The offset that counts for a partition."""

    place: int = NOWHERE
    """Its place in the log."""
    commit: OffsetCommit | None = None


@dataclass(slots=True)
class GroupLedger:
    """The offsets of one run's group."""

    record: Callable[[TopicPartition], PartitionRecord]
    _commits: dict[str, OffsetCommit] = field(default_factory=dict)
    _pending: dict[int, list[tuple[int, TopicPartition, OffsetCommit]]] = field(
        default_factory=dict
    )
    """The commits in transactions without a marker, by producer id."""
    _offsets: dict[TopicPartition, _Offset] = field(default_factory=dict)

    @property
    def is_void(self) -> bool:
        return self.record(GROUP_STATE).unclean

    @property
    def committed(self) -> int:
        """The number of commits that were part of a transaction, and count."""
        return sum(each.counts and each.transaction is not None for each in self._commits.values())

    def sends(self, commit: OffsetCommit) -> None:
        """Record a commit that is about to be sent for the first time."""
        self._commits[commit.name] = commit

    def record_answer(self, commit: OffsetCommit) -> None:
        """Record that its client got a successful answer."""
        commit.is_answered = True
        if not self.is_void and not commit.is_logged:
            raise InvariantViolation(
                "what a coordinator acknowledges is committed",
                f"the offsets of {commit.name} are acknowledged, and not in {GROUP_STATE}",
            )

    def on_data(self, note: BatchNote, batch: bytes) -> ObservedTransaction | None:
        """Record a committed batch; return the transaction that it is part of."""
        found: ObservedTransaction | None = None
        for _, raw_key, raw in iter_raw(batch, FIELDS.log):
            key = decode_key(raw_key)
            if not isinstance(key, OffsetKey) or key.group_id != GROUP or raw is None:
                continue
            record = decode_record(key, raw)
            assert isinstance(record, OffsetRecord)
            commit = self._commits.get(record.metadata)
            if commit is None or commit.offsets.get(key.partition) != record.offset:
                raise InvariantViolation(
                    "only what was sent is in a log", f"{GROUP_STATE} at {note}: {key}, {record}"
                )
            commit.is_logged = True
            found = commit.transaction
            if note.is_transactional is not (found is not None):
                raise InvariantViolation(
                    "offsets of a transaction are written in it",
                    f"{GROUP_STATE} at {note}: {commit.name}",
                )
            if found is None:
                self._count(note.base_offset, key.partition, commit)
            else:
                pending = self._pending.setdefault(note.producer[0], [])
                pending.append((note.base_offset, key.partition, commit))
        return found

    def on_marker(self, note: BatchNote) -> None:
        """Record a committed marker."""
        for place, tp, commit in self._pending.pop(note.producer[0], ()):
            if note.marker_commits:
                self._count(place, tp, commit)

    def _count(self, place: int, tp: TopicPartition, commit: OffsetCommit) -> None:
        commit.places[tp] = max(place, commit.places.get(tp, NOWHERE))
        known = self._offsets.setdefault(tp, _Offset())
        if known.place < place:
            known.place, known.commit = place, commit

    def places(self) -> dict[TopicPartition, int]:
        """Return the places in the log of the offsets that count now."""
        return {tp: known.place for tp, known in self._offsets.items()}

    def check_read(
        self, tp: TopicPartition, offset: int, name: str, at_least: int, *, is_fresh: bool
    ) -> None:
        """Check an offset that a reader got. `at_least`: the place of the offset that counted when
        it asked; `is_fresh`: the broker that it asked led all the time."""
        if self.is_void:
            return
        commit = self._commits.get(name)
        place = NOWHERE
        if offset != NOWHERE or name:
            if commit is None or commit.offsets.get(tp) != offset or tp not in commit.places:
                state = "was never sent" if commit is None else "does not count"
                raise InvariantViolation(
                    "a group reads offsets that are committed, and nothing else",
                    f"{tp}: {offset} of '{name}', which {state}",
                )
            place = commit.places[tp]
        if is_fresh and place < at_least:
            raise InvariantViolation(
                "a group reads the newest offset that is committed",
                f"{tp}: {offset} of '{name}', which lies before {at_least}",
            )

    def check_stable(
        self, places: Mapping[TopicPartition, int], read: Container[TopicPartition]
    ) -> None:
        """Check the offsets of a reader that waits for stable ones; `places` are those when it
        asked."""
        left = [str(tp) for tp in places if tp not in read]
        if left and not self.is_void:
            raise InvariantViolation(
                "a group reads the newest offset that is committed", f"nothing of {', '.join(left)}"
            )

    def check_end(self, is_void: Callable[[ObservedTransaction], bool]) -> None:
        """Check the offsets after all transactions have ended; `is_void` says for which nothing is
        promised."""
        if self.is_void:
            return
        for commit in self._commits.values():
            transaction = commit.transaction
            if transaction is None or not commit.is_answered or transaction.outcome is None:
                continue
            if is_void(transaction):
                continue
            if commit.counts is not transaction.outcome:
                raise InvariantViolation(
                    "offsets count if and only if their transaction is committed",
                    f"{commit.name} {'counts' if commit.counts else 'does not count'}",
                )
