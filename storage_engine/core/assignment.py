"""Chooses the brokers for the replicas of a topic's partitions.

Rule (R-REP1): s = the broker preferred for the fewest partitions; replica 0 of partition i lies on
(s + i) mod n, replica j >= 1 on (s + i + 1 + (i // n + j - 1) mod (n - 1)) mod n. For s = 0 and i <
n that is the documented (i + j) mod n. With racks, brokers are first put in an order that
alternates racks, and replicas skip racks they already have while others are left.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId

Assignment = dict[int, tuple[BrokerId, ...]]
"""Partition -> replicas; the first is the preferred one."""


def _alternating(racks: Mapping[BrokerId, str | None]) -> list[BrokerId]:
    """Return the brokers in an order in which neighbours are on different racks, as far as the
    racks allow."""
    if not any(racks.values()):
        return sorted(racks)
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    order: list[BrokerId] = []
    for depth in range(max(len(queue) for queue in queues)):
        order.extend(queue[depth] for queue in queues if depth < len(queue))
    return order


def _spread_over_racks(
    candidates: Sequence[BrokerId], replication_factor: int, racks: Mapping[BrokerId, str | None]
) -> tuple[BrokerId, ...]:
    """Return `replication_factor` candidates; those on racks without a replica come before the
    others."""
    chosen = [candidates[0]]
    waiting = list(candidates[1:])
    while len(chosen) < replication_factor:
        used = {racks.get(broker) for broker in chosen}
        fresh = next((b for b in waiting if racks.get(b) not in used), waiting[0])
        waiting.remove(fresh)
        chosen.append(fresh)
    return tuple(chosen)


def assign_replicas(
    racks: Mapping[BrokerId, str | None],
    *,
    partitions: int,
    replication_factor: int,
    preferred_counts: Mapping[BrokerId, int],
    first_partition: int = 0,
    start_broker: BrokerId | None = None,
) -> Assignment:
    """Return the replicas of the partitions first_partition .. first_partition + partitions - 1.

    `racks` maps every live broker to its rack or None. `preferred_counts` says for how many
    partitions each broker is the preferred replica now. `start_broker` continues the sequence of an
    existing topic: it is the preferred replica of the topic's partition 0."""
    count = len(racks)
    if partitions <= 0:
        raise KafkaError(
            f"{partitions} partitions are not possible: a topic has at least 1",
            ErrorCode.INVALID_PARTITIONS,
        )
    if not 1 <= replication_factor <= count:
        raise KafkaError(
            f"replication factor {replication_factor} is not possible with {count} brokers",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    order = _alternating(racks)
    if start_broker is not None and start_broker in racks:
        start = order.index(start_broker)
    else:
        load = Counter({broker: preferred_counts.get(broker, 0) for broker in order})
        start = min(range(count), key=lambda index: (load[order[index]], index))
    has_racks = any(racks.values())
    result: Assignment = {}
    for i in range(first_partition, first_partition + partitions):
        places = [(start + i) % count]
        shift = i // count
        places.extend(
            (start + i + 1 + (shift + j - 1) % (count - 1)) % count for j in range(1, count)
        )
        candidates = [order[place] for place in places]
        result[i] = (
            _spread_over_racks(candidates, replication_factor, racks)
            if has_racks
            else tuple(candidates[:replication_factor])
        )
    return result
