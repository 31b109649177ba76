"""Chooses the partitions whose preferred replicas should lead again. Source: R-CTL7."""

from collections import Counter
from collections.abc import Iterable, Iterator

from storage_engine.core.control.cluster_state import PartitionState
from storage_engine.core.ids import BrokerId, TopicPartition


def led_elsewhere(
    partitions: Iterable[tuple[TopicPartition, BrokerId, PartitionState]], percentage: int
) -> Iterator[TopicPartition]:
    """Return the partitions of each broker of which more than `percentage` are led by others, as
    Kafka does.

    `partitions` gives each partition with the broker that it prefers."""
    elsewhere: dict[BrokerId, list[TopicPartition]] = {}
    preferred_count: Counter[BrokerId] = Counter()
    for partition, preferred, state in partitions:
        preferred_count[preferred] += 1
        if state.leader != preferred:
            elsewhere.setdefault(preferred, []).append(partition)
    for broker, of_broker in elsewhere.items():
        if 100 * len(of_broker) > percentage * preferred_count[broker]:
            yield from of_broker
