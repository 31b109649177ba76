"""Replicas that move between the log dirs of their brokers."""

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsResponse
from storage_engine.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.reassign_log_dirs import (
    begin_log_dir_moves,
    log_dir_progress,
)
from storage_engine.tools.placement.reassign_progress import DONE, FAILED, MOVING

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LogDir = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = LogDir.DescribeLogDirsTopic
Refused = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult


class Disks:
    """By broker and folder, the replicas there: how far behind, and whether it is a copy."""

    def __init__(self, fake) -> None:
        self.found: dict[int, dict[str, dict[TopicPartition, tuple[int, bool]]]] = {}
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.asked: list[tuple[int, str]] = []
        fake.admin = self._answer

    def _answer(self, broker, api, request):
        if api == "AlterReplicaLogDirs":
            self.asked += [(broker, each.path) for each in request.dirs]
            refused = Refused.AlterReplicaLogDirPartitionResult
            rows = [
                Refused(
                    topic_name=topic.name,
                    partitions=[
                        refused(
                            partition_index=number,
                            error_code=self.codes.get(TopicPartition(topic.name, number), 0),
                        )
                        for number in topic.partitions
                    ],
                )
                for each in request.dirs
                for topic in each.topics
            ]
            return AlterReplicaLogDirsResponse(results=rows)
        row = Topic.DescribeLogDirsPartition
        return DescribeLogDirsResponse(
            results=[
                LogDir(
                    log_dir=path,
                    topics=[
                        Topic(
                            name=tp.topic,
                            partitions=[
                                row(
                                    partition_index=tp.partition,
                                    partition_size=1,
                                    offset_lag=lag,
                                    is_future_key=is_copy,
                                )
                            ],
                        )
                        for tp, (lag, is_copy) in replicas.items()
                    ],
                )
                for path, replicas in self.found.get(broker, {}).items()
            ]
        )


@pytest.fixture
def disks(fake) -> Disks:
    return Disks(fake)


@pytest.fixture
def cluster(fake):
    with Cluster(fake.bootstrap_servers, deadline_ms=5000) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"/b": {A: (0, False)}}, (DONE, "")),
        ({"/b": {B: (0, False), A: (0, False)}}, (DONE, "")),
        (
            {"/a": {A: (0, False)}, "/b": {A: (7, True)}},
            (MOVING, "broker 1 copies to /b, 7 behind"),
        ),
        ({"/a": {A: (0, False)}, "/b": {}}, (FAILED, "on broker 1 it is in /a")),
        ({"/a": {}, "/b": {}}, (FAILED, "broker 1 has no replica of it")),
    ],
)
def test_a_replica_is_done_where_it_was_to_go_and_else_it_is_told_where_it_is(
    disks, cluster, found, expected
):
    disks.found = {1: found}
    assert log_dir_progress(cluster, {1: {A: "/b"}}) == {A: expected}


@pytest.mark.parametrize("late", [1, 2])
def test_a_partition_is_done_when_all_its_replicas_are(disks, cluster, late):
    wanted = {1: {A: "/b"}, 2: {A: "/b"}}
    there = {"/b": {A: (0, False)}}
    disks.found = {1: there, 2: there, late: {"/a": {A: (0, False)}}}
    assert log_dir_progress(cluster, wanted) == {A: (FAILED, f"on broker {late} it is in /a")}
    disks.found[late] = there
    assert log_dir_progress(cluster, wanted) == {A: (DONE, "")}


def test_replicas_that_are_not_there_yet_are_no_refusal(disks, cluster):
    disks.codes = {A: ErrorCode.REPLICA_NOT_AVAILABLE}
    begin_log_dir_moves(cluster, {2: {A: "/b"}, 1: {A: "/b", B: "/c"}})
    assert disks.asked == [(1, "/b"), (1, "/c"), (2, "/b")]


def test_all_that_are_refused_are_named_in_one_line(disks, cluster):
    disks.codes = {A: ErrorCode.LOG_DIR_NOT_FOUND, B: ErrorCode.KAFKA_STORAGE_ERROR}
    with pytest.raises(CommandError, match=r"t-0 to /b on broker 1: .*; t-1 to /b on broker 1: "):
        begin_log_dir_moves(cluster, {1: {A: "/b", B: "/b"}})
