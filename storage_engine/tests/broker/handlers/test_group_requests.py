"""Requests about many groups or offsets: each is answered once, and a commit has a limit."""

from types import SimpleNamespace

import pytest

from storage_engine.broker.handlers.groups.group_requests import (
    COMMIT_MAX_BYTES,
    COMMITTED_OFFSET_BYTES,
    OffsetsToCommit,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import delete_groups, describe_groups, offset_commit
from storage_engine.tests.broker.support import cluster_fixture

PARTITIONS = 4
QUARTER = COMMIT_MAX_BYTES // 4 - COMMITTED_OFFSET_BYTES

cluster = cluster_fixture(
    brokers=1,
    offsets_topic_replication_factor="1",
    offsets_topic_num_partitions="1",
    default_replication_factor="1",
)


def committed(sizes: list[int], most: int = COMMIT_MAX_BYTES) -> list[ErrorCode]:
    """The codes of partitions whose metadata have these sizes."""
    known = SimpleNamespace(partitions={"t": dict.fromkeys(range(PARTITIONS))}.get)
    commit = OffsetsToCommit(known, metadata_max_bytes=most, wall_ms=0)
    topic = offset_commit.OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        topic.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=1, committed_metadata="x" * size
        )
        for number, size in enumerate(sizes)
    ]
    list(commit.take([topic(name="t", partitions=partitions)]))
    stored = {tp for tp, code in commit.codes.items() if code is ErrorCode.NONE}
    assert set(commit.offsets) == stored
    return [commit.codes[TopicPartition("t", number)] for number in range(len(sizes))]


def test_what_of_a_commit_no_append_can_hold_is_refused():
    fits, too_large = ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert committed([QUARTER] * 4) == [fits] * 4
    assert committed([QUARTER + 1, QUARTER, QUARTER, QUARTER]) == [fits, fits, fits, too_large]


def test_an_offset_that_is_refused_for_its_metadata_or_partition_hinders_no_other():
    codes = committed([5, 6, 0, 5, 0], most=5)
    fits = ErrorCode.NONE
    assert codes[:4] == [fits, ErrorCode.OFFSET_METADATA_TOO_LARGE, fits, fits]
    assert codes[4] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("names", [[], ["g"], ["g", "h", "g"]])
def test_groups_that_are_named_twice_are_described_and_deleted_once(cluster, names):
    described = describe_groups.DescribeGroupsRequest(groups=names)
    answer = cluster.answer(cluster.ask(1, describe_groups.API, 5, described))
    once = list(dict.fromkeys(names))
    assert [each.group_id for each in answer.groups] == once
    deleted = delete_groups.DeleteGroupsRequest(groups_names=names)
    answer = cluster.answer(cluster.ask(1, delete_groups.API, 2, deleted))
    assert [each.group_id for each in answer.results] == once
