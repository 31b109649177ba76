"""Snapshots of clusters that no watcher has looked at."""

from collections.abc import Sequence
from uuid import UUID

from headrace_console.cluster.snapshot import Snapshot
from storage_engine.client.metadata import ClusterMetadata, TopicMetadata
from storage_engine.protocol.apis.metadata import MetadataBroker, MetadataPartition

NOW_MS = 1_000_000_000_000


def snapshot(
    brokers: Sequence[int] = (1, 2, 3),
    *,
    leader: int = 1,
    isr: Sequence[int] = (1, 2, 3),
    topics: int = 1,
    partitions: int = 1,
    controller: int = 1,
    **more,
) -> Snapshot:
    metadata = ClusterMetadata(
        brokers={
            each: MetadataBroker(broker_id=each, host="host", port=9000 + each) for each in brokers
        },
        topics={
            f"t{number}": TopicMetadata(
                topic=f"t{number}",
                topic_id=UUID(int=number + 1),
                is_internal=False,
                partitions={
                    place: MetadataPartition(
                        partition=place, leader=leader, replicas=(1, 2, 3), isr=isr, leader_epoch=4
                    )
                    for place in range(partitions)
                },
            )
            for number in range(topics)
        },
        controller_id=controller,
    )
    return Snapshot(at_ms=NOW_MS, metadata=metadata, **more)
