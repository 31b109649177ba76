"""Where reading goes on; `headrace_lake/tests/model` has the interleavings."""

import uuid

import pytest

from headrace_lake.protocol.progress import (
    LakeProgress,
    as_applications,
    of_applications,
)
from headrace_lake.protocol.resuming import LogAnswer, resume
from headrace_lake.protocol.stops import StopKind, TableStoppedError
from storage_engine.core.replication.leader_epochs import UNDEFINED_END, EpochEnd

TOPIC = uuid.UUID(int=5)
AT_10 = LakeProgress(end_offset=10, leader_epoch=3)


def answer(start=0, end=50, epoch=3, epoch_end=50, *, topic=TOPIC) -> LogAnswer:
    return LogAnswer(
        topic_id=topic,
        start_offset=start,
        end_offset=end,
        epoch_end=None if epoch is None else EpochEnd(epoch, epoch_end),
    )


@pytest.mark.parametrize(
    ("progress", "log", "position"),
    [
        (None, answer(start=4, epoch=None), LakeProgress(end_offset=4)),
        (AT_10, answer(), AT_10),
        (AT_10, answer(start=10), AT_10),
        # All that the table holds is there, and no more of this epoch.
        (AT_10, answer(epoch_end=10), AT_10),
        # Nothing was consumed yet, so there is no epoch to ask for.
        (LakeProgress(end_offset=0), answer(epoch=None), LakeProgress(end_offset=0)),
    ],
)
def test_reading_goes_on_behind_what_the_table_holds(progress, log, position):
    """With the epoch before it, which the first fetch says."""
    assert resume("t-0", TOPIC, progress, log) == position


@pytest.mark.parametrize(
    "log",
    [
        answer(epoch_end=9),
        answer(end=9),
        # The epoch is unknown to the leader.
        answer(epoch=UNDEFINED_END.epoch, epoch_end=UNDEFINED_END.end_offset),
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
    assert resume("t-0", TOPIC, AT_10, answer(start=12), accepts_gaps=True) == (
        LakeProgress(end_offset=12)
    )


def test_another_topic_stops_the_table():
    with pytest.raises(TableStoppedError, match="deleted and created anew") as stopped:
        resume("t-0", TOPIC, None, answer(epoch=None, topic=uuid.UUID(int=6)))
    assert stopped.value.kind is StopKind.RECREATED


def test_progress_reads_back_from_versions_of_applications():
    progress = {0: AT_10, 12: LakeProgress(end_offset=0)}
    versions = as_applications(TOPIC, progress) | as_applications(uuid.UUID(int=6), {1: AT_10})
    assert of_applications(TOPIC, versions, range(20)) == progress
