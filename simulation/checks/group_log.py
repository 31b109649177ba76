"""The records of one group in its coordinator's log, batch by batch as they are committed.

A failover may come after any batch, so that each rule holds after every one. The coordinator checks
a commit and appends it in one step, and its log has the state before that step: what the log says
of the committing member is what the coordinator knew. A member commits what it has held since an
earlier epoch with that one, too (KIP-1251). There is no guarantee once all replicas of
the log lost their power. Source: KIP-848.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from simulation.checks.copies import READ_BYTES, BatchNote
from simulation.checks.ledger import InvariantViolation, PartitionRecord
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.records import (
    ConsumerGroupContent,
    ConsumerMemberKey,
    CurrentAssignmentKey,
    CurrentAssignmentRecord,
)
from storage_engine.core.groups.consumer_protocol import read_assignment
from storage_engine.core.groups.records import (
    GroupContent,
    GroupRecord,
    OffsetKey,
    OffsetRecord,
    Record,
    RecordKey,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.state.group_records import FIELDS, decode_key, decode_record
from storage_engine.protocol.state.state_batches import iter_raw

ONE_KIND = "a group is wholly of one kind"
ONE_OWNER = "a partition has one owner in the coordinator's log"
EPOCHS = "member epochs never go back"
STALE = "a commit with a stale epoch is never accepted"
BACK = "committed offsets go back only by their owner"
ACKNOWLEDGED = "what a group's coordinator acknowledges is committed"
RESTORED = "a restored coordinator has the state that was acknowledged"

AWAY = -2
"""The member epoch of a static member that has left for a moment."""


class LoggedGroupKind(Enum):
    NONE = "none"
    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class CommitName:
    """The metadata of a commit: it names the member that sends it."""

    member_id: str
    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.member_id} {self.epoch} {self.number}"

    @classmethod
    def read(cls, text: str) -> "CommitName":
        member_id, epoch, number = text.rsplit(" ", 2)
        return cls(member_id, int(epoch), int(number))


class GroupLog:
    """The log of one group."""

    def __init__(
        self, group_id: str, is_void: Callable[[], bool], names: Callable[[UUID], str | None]
    ) -> None:
        """`names` returns the topic with an id, if it never goes."""
        self.group_id = group_id
        self._is_void = is_void
        self._names = names
        self.content = GroupContent()
        self._said: dict[str, set[tuple[int, frozenset[tuple[UUID, frozenset[int]]]]]] = {}
        """The epochs and assignments of each member that the log has ever had."""
        self._gone: set[str] = set()
        """The members that the log has ever let go."""
        self._commits: set[int] = set()
        self.epochs: dict[str, int] = {}
        """The newest epoch of each member of a consumer group."""
        self._since: dict[str, dict[tuple[UUID, int], int]] = {}
        """The epoch in which each member got the partitions that it has had ever since."""
        self.conversions = 0
        self.accepted = 0
        """How many commits the log has."""

    @property
    def kind(self) -> LoggedGroupKind:
        if self.group_id in self.content.consumer_groups:
            return LoggedGroupKind.CONSUMER
        return (
            LoggedGroupKind.CLASSIC
            if self.group_id in self.content.groups
            else LoggedGroupKind.NONE
        )

    @property
    def consumer(self) -> ConsumerGroupContent:
        return self.content.consumer_groups.get(self.group_id, ConsumerGroupContent())

    @property
    def classic(self) -> GroupRecord | None:
        return self.content.groups.get(self.group_id)

    def offset(self, tp: TopicPartition) -> int:
        """Return the committed offset; 0 when there is none."""
        placed = self.content.offsets.get(OffsetKey(self.group_id, tp))
        return placed.record.offset if placed and isinstance(placed.record, OffsetRecord) else 0

    # --- batches ---

    def on_batch(self, batch: bytes) -> None:
        """Take up a batch that is committed now."""
        kind, members = self.kind, self._members()
        for _, raw_key, raw in iter_raw(batch, FIELDS.log):
            key = decode_key(raw_key)
            if key is None or key.group_id != self.group_id:
                continue
            record = None if raw is None else decode_record(key, raw)
            self._take(key, record)
        self._check_kind(kind, members)
        self._check_owners()

    def _take(self, key: RecordKey, record: Record | None) -> None:
        match key, record:
            case OffsetKey(), OffsetRecord():
                self._check_commit(key.partition, record)
            case CurrentAssignmentKey(), CurrentAssignmentRecord():
                self._check_epoch(key.member_id, record)
                self._note_held(key.member_id, record)
                assigned = _frozen(record.assigned)
                self._said.setdefault(key.member_id, set()).add((record.member_epoch, assigned))
            case CurrentAssignmentKey(), None:
                self._since.pop(key.member_id, None)
            case ConsumerMemberKey(), None:
                self._gone.add(key.member_id)
                self.epochs.pop(key.member_id, None)
        self.content.put(key, record, None)

    def _members(self) -> set[str]:
        classic = () if self.classic is None else self.classic.members
        return {*self.consumer.members, *(each.member_id for each in classic)}

    def _check_kind(self, before: LoggedGroupKind, members: set[str]) -> None:
        consumer, now = self.consumer, self.kind
        if now not in (before, LoggedGroupKind.NONE) and before is not LoggedGroupKind.NONE:
            self.conversions += 1
        if self._is_void():
            return
        if self.classic is not None and len(consumer):
            raise InvariantViolation(ONE_KIND, f"{self.group_id} has records of both kinds")
        if now is LoggedGroupKind.NONE and members:
            raise InvariantViolation(
                ONE_KIND, f"{self.group_id}, a {before.value} group, has lost {sorted(members)}"
            )
        speaks = any(each.classic is None for each in consumer.members.values())
        if before is LoggedGroupKind.CLASSIC and now is LoggedGroupKind.CONSUMER and not speaks:
            # Whoever joins by the consumer protocol converts the group, in the same step.
            raise InvariantViolation(ONE_KIND, f"{self.group_id} is converted by halves")
        if consumer.members and consumer.group is None:
            raise InvariantViolation(ONE_KIND, f"{self.group_id} has members and no epoch")

    def _check_owners(self) -> None:
        if self._is_void():
            return
        owners: dict[tuple[UUID, int], str] = {}
        for member_id, current in self.consumer.current.items():
            for part in (current.assigned, current.pending_revocation):
                for topic_id, numbers in part.items():
                    for number in numbers:
                        other = owners.setdefault((topic_id, number), member_id)
                        if other != member_id:
                            raise InvariantViolation(
                                ONE_OWNER, f"{topic_id}-{number}: {other} and {member_id}"
                            )

    def _check_epoch(self, member_id: str, record: CurrentAssignmentRecord) -> None:
        """An epoch below 0 says that the member has left for a moment. A member that comes back
        has a new id, or the tombstone of the old one lies between."""
        before = self.epochs.get(member_id, 0)
        if 0 <= record.member_epoch < before and not self._is_void():
            raise InvariantViolation(EPOCHS, f"{member_id}: from {before} to {record.member_epoch}")
        self.epochs[member_id] = max(before, record.member_epoch)

    def _check_commit(self, tp: TopicPartition, record: OffsetRecord) -> None:
        name = CommitName.read(record.metadata)
        self._commits.add(name.number)
        self.accepted += 1
        if self._is_void():
            return
        epoch, owned = self._of_committer(name.member_id)
        if epoch != name.epoch and not self._has_held(name, tp):
            raise InvariantViolation(
                STALE, f"{tp}: {name} is accepted while the member's epoch is {epoch}"
            )
        before = self.offset(tp)
        if owned is not None and record.offset < before and tp not in owned:
            raise InvariantViolation(BACK, f"{tp}: from {before} to {record.offset} by {name}")

    def _note_held(self, member_id: str, record: CurrentAssignmentRecord) -> None:
        before = self._since.get(member_id, {})
        self._since[member_id] = {
            (topic_id, number): before.get((topic_id, number), record.member_epoch)
            for part in (record.assigned, record.pending_revocation)
            for topic_id, numbers in part.items()
            for number in numbers
        }

    def _has_held(self, name: CommitName, tp: TopicPartition) -> bool:
        """Return True when the member has had the partition ever since it sent the commit. One of
        a topic that may go counts by its number."""
        return any(
            number == tp.partition
            and self._names(topic_id) in (tp.topic, None)
            and 0 <= since <= name.epoch <= self.epochs.get(name.member_id, 0)
            for (topic_id, number), since in self._since.get(name.member_id, {}).items()
        )

    def _of_committer(self, member_id: str) -> tuple[int | None, set[TopicPartition] | None]:
        """Return the epoch and the partitions of a member. Those of topics that may go are left
        out; None stands for partitions that are not known."""
        current = self.consumer.current.get(member_id)
        if current is not None:
            return current.member_epoch, {
                TopicPartition(name, number)
                for part in (current.assigned, current.pending_revocation)
                for topic_id, numbers in part.items()
                if (name := self._names(topic_id)) is not None
                for number in numbers
            }
        if self.classic is None:
            return None, None
        for each in self.classic.members:
            if each.member_id == member_id:
                found = read_assignment(each.assignment)
                partitions = {} if found is None else found.partitions
                owned = {TopicPartition(t, n) for t in partitions for n in partitions[t]}
                return self.classic.generation, owned
        return None, None

    # --- answers ---

    def check_answer(
        self, member_id: str, epoch: int, assigned: Mapping[UUID, frozenset[int]] | None
    ) -> None:
        """Check an answer to a heartbeat; `assigned` None: it names no partitions."""
        said = self._said.get(member_id, set())
        if assigned is None:
            is_known = any(epoch == each for each, _ in said)
        else:
            is_known = (epoch, _frozen(assigned)) in said
        if not is_known and not self._is_void():
            raise InvariantViolation(
                ACKNOWLEDGED,
                f"{member_id} is told of epoch {epoch} and {assigned}, the log has never said so",
            )

    def check_left(self, member_id: str, epoch: int) -> None:
        """Check an answer to a member that leaves."""
        if epoch == AWAY:
            is_known = any(each == AWAY for each, _ in self._said.get(member_id, ()))
        else:
            is_known = member_id in self._gone
        if not is_known and not self._is_void():
            raise InvariantViolation(ACKNOWLEDGED, f"{member_id} leaves, the log has it still")

    def check_committed(self, number: int) -> None:
        """Check an answer that offsets are committed."""
        if number not in self._commits and not self._is_void():
            raise InvariantViolation(ACKNOWLEDGED, f"commit {number} is not in the log")

    # --- the coordinator's memory ---

    def check_memory(self, cluster: SimulatedCluster, record: PartitionRecord) -> bool:
        """Compare the state of the present coordinator with the log, whose partition `record` is.
        Return False when there is none, or it has more to write."""
        state = record.state
        if state is None or state.leader == -1 or self._is_void():
            return False
        broker = cluster[state.leader]
        partition = broker.replicas.get(record.partition) if broker.serving else None
        if (
            partition is None
            or partition.leader is None
            or partition.leader_epoch != state.leader_epoch
            or partition.log.log_end_offset != record.committed.end_offset
        ):
            return False
        core = broker.parts.coordinators.groups.coordinator_of(self.group_id)
        if not hasattr(core, "groups"):
            return False
        group = core.groups.get(self.group_id)
        found = group.content if isinstance(group, ConsumerGroup) else ConsumerGroupContent()
        if found != self.consumer:
            raise InvariantViolation(
                RESTORED, f"broker {broker.id} has {found}, the log says {self.consumer}"
            )
        offsets = {} if group is None else group.offsets.committed
        wanted = {key.partition: placed.record for key, placed in self.content.offsets.items()}
        if offsets != wanted:
            raise InvariantViolation(
                RESTORED, f"broker {broker.id} has offsets {offsets}, the log says {wanted}"
            )
        return True


def _frozen(assignment: Assignment) -> frozenset[tuple[UUID, frozenset[int]]]:
    return frozenset((topic, numbers) for topic, numbers in assignment.items() if numbers)


def committed_bytes(
    cluster: SimulatedCluster, tp: TopicPartition, note: BatchNote, broker: int
) -> bytes:
    """Return the bytes of a batch that is committed now, from the broker that leads."""
    partition = cluster[broker].replicas.get(tp)
    assert partition is not None, "it leads"
    piece = partition.log.reads.read(
        note.base_offset, max_bytes=READ_BYTES, max_offset=note.end_offset
    )
    assert piece is not None, "it has what it commits"
    return bytes(piece.view())
