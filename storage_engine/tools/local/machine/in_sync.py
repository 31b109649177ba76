"""Which partitions of a broker have replicas that are not in sync. Without IO."""

from storage_engine.client.metadata import ClusterMetadata

MOST_NAMED = 3


def partitions_behind(view: ClusterMetadata, broker_id: int) -> list[str]:
    """The partitions with a replica on the broker whose replicas are not all in sync, that one's or
    another: without this broker they would have one fewer still."""
    return [
        f"{topic.topic}-{partition.partition}"
        for topic in view.topics.values()
        for partition in topic.partitions.values()
        if broker_id in partition.replicas and set(partition.isr) < set(partition.replicas)
    ]


def named(partitions: list[str]) -> str:
    """Some of them, for a line of text."""
    more = len(partitions) - MOST_NAMED
    return ", ".join(partitions[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
