"""A group's log keeps its rules from batch to batch, and backs answers."""

from uuid import UUID

import pytest

from simulation.checks.group_log import AWAY, CommitName, GroupLog, LoggedGroupKind
from simulation.checks.ledger import InvariantViolation
from storage_engine.core.groups.consumer.records import (
    ClassicMemberRecord,
    ConsumerGroupKey,
    ConsumerGroupRecord,
    ConsumerMemberKey,
    ConsumerMemberRecord,
    CurrentAssignmentKey,
    CurrentAssignmentRecord,
    MemberState,
)
from storage_engine.core.groups.consumer_protocol import write_assignment
from storage_engine.core.groups.records import (
    GroupKey,
    GroupMemberRecord,
    GroupRecord,
    OffsetKey,
    OffsetRecord,
    Record,
    RecordKey,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.state.group_records import encode_key, encode_record
from storage_engine.protocol.state.state_batches import encode_raw

GROUP, TOPIC, TP = "group", UUID(int=1), TopicPartition("topic", 0)
ZERO = {TOPIC: frozenset({0})}
CLASSIC = ClassicMemberRecord(session_timeout_ms=1, protocols=(("range", b""),))


class Log(GroupLog):
    """A log that is written by hand."""

    def __init__(self) -> None:
        super().__init__(GROUP, lambda: False, {TOPIC: TP.topic}.get)

    def write(self, *entries: tuple[RecordKey, Record | None]) -> None:
        """Write one batch."""
        raw = [
            (encode_key(key), None if record is None else encode_record(record))
            for key, record in entries
        ]
        self.on_batch(bytes(encode_raw(raw, now_ms=1)))

    def commit(self, member_id: str, epoch: int, offset: int) -> None:
        name = CommitName(member_id, epoch, offset)
        record = OffsetRecord(offset=offset, metadata=str(name), commit_ms=1)
        self.write((OffsetKey(GROUP, TP), record))


def group(epoch: int) -> tuple[RecordKey, Record]:
    return ConsumerGroupKey(GROUP), ConsumerGroupRecord(epoch=epoch)


def member(
    member_id: str, *, classic: ClassicMemberRecord | None = None
) -> tuple[RecordKey, Record]:
    record = ConsumerMemberRecord(client_id="", client_host="", classic=classic)
    return ConsumerMemberKey(GROUP, member_id), record


def current(member_id: str, epoch: int, assigned=None, pending=None) -> tuple[RecordKey, Record]:
    record = CurrentAssignmentRecord(
        member_epoch=epoch,
        previous_epoch=0,
        state=MemberState.STABLE,
        assigned=assigned or {},
        pending_revocation=pending or {},
    )
    return CurrentAssignmentKey(GROUP, member_id), record


def classic_group(generation: int, *member_ids: str) -> tuple[RecordKey, Record]:
    members = tuple(
        GroupMemberRecord(each, None, "", "", 1, 1, b"", write_assignment(0, {TP.topic: [0]}))
        for each in member_ids
    )
    record = GroupRecord(
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader=None,
        state_ms=1,
        members=members,
    )
    return GroupKey(GROUP), record


@pytest.fixture
def log() -> Log:
    """A log with the members a, who has partition 0, and b, both of epoch 2."""
    made = Log()
    made.write(group(2), member("a"), current("a", 2, ZERO), member("b"), current("b", 2))
    return made


def test_a_partition_that_its_owner_has_yet_to_give_up_is_nobody_elses(log):
    log.write(current("a", 2, {}, ZERO))
    with pytest.raises(InvariantViolation, match="one owner"):
        log.write(current("b", 3, ZERO))


def test_a_partition_goes_over_in_one_batch(log):
    log.write(current("a", 3), current("b", 3, ZERO))


def test_a_member_epoch_goes_back_only_behind_a_tombstone(log):
    log.write(current("a", AWAY, ZERO))
    log.write((CurrentAssignmentKey(GROUP, "a"), None), (ConsumerMemberKey(GROUP, "a"), None))
    log.write(member("a"), current("a", 1))
    with pytest.raises(InvariantViolation, match="never go back"):
        log.write(current("b", 1))


def test_a_commit_has_the_epoch_of_its_member_or_one_since_which_it_has_the_partition(log):
    log.commit("a", 2, 5)
    log.write(current("a", 3, ZERO))
    log.commit("a", 2, 6)
    log.write(current("a", 4, {}, ZERO))
    log.commit("a", 2, 7)
    for epoch in (1, 5):
        with pytest.raises(InvariantViolation, match="stale epoch"):
            log.commit("a", epoch, 8)
    log.write(current("a", 5))
    with pytest.raises(InvariantViolation, match="stale epoch"):
        log.commit("a", 4, 8)
    log.write(current("a", 6, ZERO))
    log.commit("a", 6, 8)
    with pytest.raises(InvariantViolation, match="stale epoch"):
        log.commit("a", 5, 9)


def test_a_commit_of_a_classic_member_has_the_generation_of_its_group():
    log = Log()
    log.write(classic_group(4, "c"))
    log.commit("c", 4, 5)
    with pytest.raises(InvariantViolation, match="stale epoch"):
        log.commit("c", 3, 6)


def test_only_the_owner_takes_offsets_back(log):
    log.commit("a", 2, 5)
    log.commit("a", 2, 4)
    log.commit("b", 2, 6)
    with pytest.raises(InvariantViolation, match="only by their owner"):
        log.commit("b", 2, 5)


def test_a_group_with_records_of_both_kinds_is_found(log):
    with pytest.raises(InvariantViolation, match="both kinds"):
        log.write(classic_group(2, "c"))


def test_a_group_is_converted_in_one_batch():
    whole = Log()
    whole.write(classic_group(1, "c"))
    whole.write((GroupKey(GROUP), None), group(1), member("c", classic=CLASSIC), member("a"))
    assert whole.kind is LoggedGroupKind.CONSUMER
    assert whole.conversions == 1


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param([(GroupKey(GROUP), None)], id="only the tombstone"),
        pytest.param(
            [(GroupKey(GROUP), None), group(1), member("c", classic=CLASSIC)],
            id="without the member that joins",
        ),
    ],
)
def test_half_a_conversion_is_found(batch):
    log = Log()
    log.write(classic_group(1, "c"))
    with pytest.raises(InvariantViolation, match="wholly of one kind"):
        log.write(*batch)


def test_half_a_conversion_back_is_found(log):
    with pytest.raises(InvariantViolation, match="no epoch"):
        log.write((ConsumerGroupKey(GROUP), None))


def test_the_log_backs_answers_that_it_has_said(log):
    log.write(current("a", 3))
    log.check_answer("a", 2, ZERO)
    log.check_answer("a", 3, None)
    with pytest.raises(InvariantViolation, match="never said so"):
        log.check_answer("a", 3, ZERO)


def test_a_member_is_told_that_it_has_left_once_the_log_says_so(log):
    with pytest.raises(InvariantViolation, match="has it still"):
        log.check_left("a", AWAY)
    log.write(current("a", AWAY, ZERO))
    log.check_left("a", AWAY)
    with pytest.raises(InvariantViolation, match="has it still"):
        log.check_left("b", -1)
    log.write((ConsumerMemberKey(GROUP, "b"), None))
    log.check_left("b", -1)


def test_a_commit_is_acknowledged_once_it_is_in_the_log(log):
    log.commit("a", 2, 5)
    log.check_committed(5)
    with pytest.raises(InvariantViolation, match="commit 6"):
        log.check_committed(6)
