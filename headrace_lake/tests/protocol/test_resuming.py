"""Where reading goes on; `headrace_lake/tests/model` has the interleavings."""

import uuid

import pytest

from headrace_lake.protocol.progress import (
    PartitionProgress,
    as_applications,
    of_applications,
)
from headrace_lake.protocol.resuming import (
    EpochEnd,
    LogAnswer,
    RowsFollow,
    may_follow,
    resume,
    rows_follow,
)
from headrace_lake.protocol.stops import StopKind, TableStoppedError

TOPIC = uuid.UUID(int=5)
AT_10 = PartitionProgress(end_offset=10, leader_epoch=3)


def answer(start=0, end=50, epoch=3, epoch_end=50, *, topic=TOPIC, leader=3) -> LogAnswer:
    return LogAnswer(
        topic_id=topic,
        start_offset=start,
        end_offset=end,
        epoch_end=None if epoch is None else EpochEnd(leader_epoch=epoch, end_offset=epoch_end),
        leader_epoch=leader,
    )


@pytest.mark.parametrize(
    ("progress", "log", "offset"),
    [
        (None, answer(start=4, epoch=None), 4),
        (AT_10, answer(), 10),
        (AT_10, answer(start=10), 10),
        # All that the table holds is there, and no more of this epoch.
        (AT_10, answer(epoch_end=10), 10),
        # Nothing was consumed yet, so there is no epoch to ask for.
        (PartitionProgress(end_offset=0), answer(epoch=None), 0),
    ],
)
def test_reading_goes_on_behind_what_the_table_holds(progress, log, offset):
    assert resume("t-0", TOPIC, progress, log) == offset


@pytest.mark.parametrize(
    "log",
    [
        answer(epoch_end=9),
        answer(end=9),
        # The epoch is unknown to the leader.
        answer(epoch=-1, epoch_end=-1),
        # The log has records of an older epoch there.
        answer(epoch=2, epoch_end=20),
    ],
)
def test_offsets_that_are_no_longer_those_of_the_table_stop_it(log):
    with pytest.raises(
        TableStoppedError, match="t-0: the table holds records up to offset 10"
    ) as s:
        resume("t-0", TOPIC, AT_10, log, accepts_gaps=True)
    assert s.value.kind is StopKind.TRUNCATED


def test_records_that_were_never_read_stop_the_table_unless_gaps_are_accepted():
    with pytest.raises(TableStoppedError, match="from offset 10 to 12 were deleted") as stopped:
        resume("t-0", TOPIC, AT_10, answer(start=12))
    assert stopped.value.kind is StopKind.GAP
    assert resume("t-0", TOPIC, AT_10, answer(start=12), accepts_gaps=True) == 12


def test_another_topic_stops_the_table():
    other = uuid.UUID(int=6)
    for stop in (
        lambda: resume("t-0", TOPIC, None, answer(epoch=None, topic=other)),
        lambda: rows_follow("t-0", TOPIC, None, fetched_topic_id=other, first_leader_epoch=0),
    ):
        with pytest.raises(TableStoppedError, match="deleted and created anew") as stopped:
            stop()
        assert stopped.value.kind is StopKind.RECREATED


def test_rows_of_another_epoch_follow_only_after_the_leader_was_asked_that_gave_them():
    def follow(epoch):
        return rows_follow("t-0", TOPIC, AT_10, fetched_topic_id=TOPIC, first_leader_epoch=epoch)

    assert follow(3) is RowsFollow.YES
    assert follow(4) is RowsFollow.ASK_FIRST
    assert may_follow("t-0", TOPIC, AT_10, answer(leader=4), fetched_from=4)
    assert not may_follow("t-0", TOPIC, AT_10, answer(leader=5), fetched_from=4)
    with pytest.raises(TableStoppedError):
        may_follow("t-0", TOPIC, AT_10, answer(epoch_end=9, leader=4), fetched_from=4)


def test_progress_reads_back_from_versions_of_applications():
    progress = {0: AT_10, 12: PartitionProgress(end_offset=0)}
    versions = as_applications(TOPIC, progress) | as_applications(uuid.UUID(int=6), {1: AT_10})
    assert of_applications(TOPIC, versions, range(20)) == progress
