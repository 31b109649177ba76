"""Has brokers take no new replicas, by Kafka's setting `cordoned.log.dirs` (KIP-1066)."""

from collections.abc import Iterable, Mapping

from storage_engine.client.admin.topics import alter_broker_configs, describe_broker_configs
from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import DeadlineExceededError, HeadraceError, KafkaError
from storage_engine.core.placement import CORDONED_LOG_DIRS
from storage_engine.net.deadline import Deadline

ALL_LOG_DIRS = "*"
"""The value for a broker that takes no new replicas."""

Cordons = Mapping[int, str | None]
"""Broker -> its `cordoned.log.dirs`; None where it has none."""


def read_cordons(cluster: Cluster, brokers: Iterable[int]) -> dict[int, str | None]:
    """Return the present setting of each broker; None also for one that is dead."""
    alive = cluster.metadata([]).brokers
    return {
        broker: _value(cluster, broker) if broker in alive else None for broker in sorted(brokers)
    }


def set_cordons(cluster: Cluster, cordons: Cordons) -> None:
    """Returns when each live broker has its setting. Raises DeadlineExceededError where one does
    not take it in time."""
    for broker, value in sorted(cordons.items()):
        if value is None:
            alter_broker_configs(cluster, broker, {}, remove=[CORDONED_LOG_DIRS])
        else:
            alter_broker_configs(cluster, broker, {CORDONED_LOG_DIRS: value})
    for broker in sorted(cordons.keys() & cluster.metadata([]).brokers.keys()):
        _wait_for(cluster, broker, cordons[broker])


def _wait_for(cluster: Cluster, broker: int, wanted: str | None) -> None:
    retry = Retry(f"{CORDONED_LOG_DIRS} of broker {broker}", Deadline.after(cluster.deadline_ms))
    while True:
        error: HeadraceError = DeadlineExceededError("it is not in force yet")
        try:
            if _value(cluster, broker) == wanted:
                return
        except (KafkaError, DeadlineExceededError) as failure:
            if broker not in cluster.metadata([]).brokers:
                return  # It reads its settings when it starts again.
            error = failure
        retry.pause(error)


def _value(cluster: Cluster, broker: int) -> str | None:
    entry = describe_broker_configs(cluster, broker).get(CORDONED_LOG_DIRS)
    return (entry.value or None) if entry is not None else None
