"""Log dirs of brokers: what is asked, and which replicas count."""

import pytest

from storage_engine.client.admin.log_dirs import (
    alter_replica_log_dirs,
    describe_log_dirs,
    sizes_on_leaders,
)
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsResponse
from storage_engine.protocol.messages.describe_log_dirs import DescribeLogDirsResponse

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
LogDir = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = LogDir.DescribeLogDirsTopic
Partition = Topic.DescribeLogDirsPartition


def log_dir(path, *replicas):
    """`replicas`: (partition of t, bytes, whether it is a copy that is not complete)."""
    rows = [
        Partition(partition_index=number, partition_size=size, is_future_key=is_future)
        for number, size, is_future in replicas
    ]
    return LogDir(log_dir=path, topics=[Topic(name="t", partitions=rows)])


def test_the_size_on_the_leader_counts_and_no_copy_that_is_under_way(fake, cluster):
    fake.add_topic("t", [1, 2])
    asked = []

    def answer(broker_id, _api, message):
        asked.append((broker_id, [(each.topic, each.partitions) for each in message.topics]))
        found = [log_dir("/a", (broker_id - 1, 70, False)), log_dir("/b", (broker_id - 1, 5, True))]
        return DescribeLogDirsResponse(results=found)

    fake.admin = answer
    assert sizes_on_leaders(cluster, [T0, T1]) == {T0: 70, T1: 70}
    assert asked == [(1, [("t", [0])]), (2, [("t", [1])])]


def test_a_broken_log_dir_is_shown_and_a_refusal_is_an_error(fake, cluster):
    broken = LogDir(log_dir="/a", error_code=int(ErrorCode.KAFKA_STORAGE_ERROR))
    fake.admin = lambda *_: DescribeLogDirsResponse(results=[broken])
    (found,) = describe_log_dirs(cluster, 1)
    assert (found.path, found.error, found.replicas) == ("/a", ErrorCode.KAFKA_STORAGE_ERROR, ())
    refused = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    fake.admin = lambda *_: DescribeLogDirsResponse(error_code=refused)
    with pytest.raises(KafkaError, match="log dirs of broker 2 can't be described"):
        describe_log_dirs(cluster, 2)


def test_moves_are_sent_by_their_log_dir_and_those_that_did_not_begin_are_told(fake, cluster):
    asked: list[tuple] = []
    code = ErrorCode.REPLICA_NOT_AVAILABLE

    def answer(broker_id, _api, message):
        asked.extend(
            (broker_id, each.path, [(topic.name, topic.partitions) for topic in each.topics])
            for each in message.dirs
        )
        topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
        row = topic.AlterReplicaLogDirPartitionResult
        rows = [row(partition_index=0), row(partition_index=1, error_code=int(code))]
        return AlterReplicaLogDirsResponse(results=[topic(topic_name="t", partitions=rows)])

    fake.admin = answer
    assert alter_replica_log_dirs(cluster, 3, {T0: "/a", U0: "/b", T1: "/a"}) == {T1: code}
    assert asked == [(3, "/a", [("t", [0, 1])]), (3, "/b", [("u", [0])])]
