"""Which partitions of a broker wait for a replica."""

from uuid import UUID

from storage_engine.client.metadata import ClusterMetadata, TopicMetadata
from storage_engine.protocol.apis.metadata import MetadataPartition
from storage_engine.tools.local.machine.in_sync import named, partitions_behind


def view_of(*replicas_and_isr: tuple[list[int], list[int]]) -> ClusterMetadata:
    partitions = {
        number: MetadataPartition(
            error_code=0, partition=number, leader=isr[0], replicas=replicas, isr=isr
        )
        for number, (replicas, isr) in enumerate(replicas_and_isr)
    }
    topic = TopicMetadata(topic="t", topic_id=UUID(int=1), is_internal=False, partitions=partitions)
    return ClusterMetadata(topics={"t": topic})


def test_a_partition_is_behind_while_any_of_its_replicas_is():
    view = view_of(([1, 2], [2, 1]), ([1, 2], [2]), ([1, 3], [1]), ([2, 3], [2]))
    assert partitions_behind(view, 1) == ["t-1", "t-2"]
    assert partitions_behind(view, 2) == ["t-1", "t-3"]
    assert partitions_behind(view, 4) == []


def test_a_long_list_is_told_in_short():
    assert named(["a-0"]) == "a-0"
    assert named([f"a-{i}" for i in range(9)]) == "a-0, a-1, a-2 and 6 more"
