"""The throttle of a reassignment: settings of brokers and topics, set before and removed after it.

Replicas that move are throttled, at the sender and at the receiver; replicas in sync never are.
Source: R-CTL8, KIP-73.
"""

from collections.abc import Iterable, Mapping, Sequence

from storage_engine.client.admin.topics import (
    ALL_BROKERS,
    alter_broker_configs,
    alter_topic_configs,
)
from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition
from storage_engine.core.settings.settings import (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
)

_RATES = (LEADER_THROTTLED_RATE, FOLLOWER_THROTTLED_RATE)
_REPLICAS = (LEADER_THROTTLED_REPLICAS, FOLLOWER_THROTTLED_REPLICAS)


def set_throttle(
    cluster: Cluster,
    plan: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    bytes_per_second: int,
) -> None:
    """Throttle what the plan copies: any present replica may have to send, the new ones take."""
    for topic in sorted({tp.topic for tp in plan}):
        sending: list[str] = []
        taking: list[str] = []
        for tp in sorted(p for p in plan if p.topic == topic):
            before = current.get(tp, ())
            sending += [f"{tp.partition}:{broker}" for broker in before]
            taking += [f"{tp.partition}:{b}" for b in plan[tp] if b not in before]
        values = {LEADER_THROTTLED_REPLICAS: sending, FOLLOWER_THROTTLED_REPLICAS: taking}
        alter_topic_configs(
            cluster,
            topic,
            {name: ",".join(replicas) for name, replicas in values.items() if replicas},
        )
    alter_broker_configs(cluster, ALL_BROKERS, dict.fromkeys(_RATES, str(bytes_per_second)))


def take_throttle_away(cluster: Cluster, topics: Iterable[str], *, of_brokers: bool) -> None:
    """Removes the throttle from these topics; from the brokers only when no other reassignment
    needs it."""
    for topic in sorted(topics):
        alter_topic_configs(cluster, topic, {}, remove=_REPLICAS)
    if of_brokers:
        alter_broker_configs(cluster, ALL_BROKERS, {}, remove=_RATES)
