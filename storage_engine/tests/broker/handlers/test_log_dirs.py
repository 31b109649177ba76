"""DescribeLogDirs (KIP-113)."""

from typing import Any

from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import describe_log_dirs

TP = TopicPartition("t", 0)


def described(cluster, topics: list[Any] | None) -> tuple[Any, dict[tuple[str, int], int]]:
    """The first log dir of broker 1, and the sizes of its replicas."""
    request = describe_log_dirs.DescribeLogDirsRequest(topics=topics)
    (folder,) = cluster.answer(cluster.ask(1, describe_log_dirs.API, 2, request)).results
    sizes = {
        (topic.name, item.partition_index): item.partition_size
        for topic in folder.topics
        for item in topic.partitions
    }
    return folder, sizes


def test_log_dirs_tell_sizes_of_the_replicas_of_a_broker(cluster):
    assert cluster.create_topic("t", 2).error_code == 0
    cluster.produced(TP, b"record")
    cluster.wait_in_sync(TP, 1, 2, 3)
    folder, sizes = described(cluster, None)
    assert (folder.error_code, folder.log_dir) == (0, str(cluster[1].folder.absolute()))
    assert sizes == {("t", 0): cluster[1].logs.logs[TP].size_in_bytes, ("t", 1): 0}
    assert sizes["t", 0] > 0
