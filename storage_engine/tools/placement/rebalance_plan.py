"""Plans the least movement that brings the load of each broker within a tolerance of the mean.

Replicas come first: from the broker that is furthest above the mean to one below it, or two are
exchanged, as long as this lessens what is beyond the tolerance and adds to no other load that
counts. Each replica moves at most once, onto a machine that has none of its partition, to no rack
that is fuller of them, and never to a cordoned broker. Then preferred leaders move along chains of
partitions, without data. As every broker's load is near the mean, so is every machine's. Partitions
that are being reassigned, or that have a replica on a dead broker, stay as they are.
"""

from collections.abc import Sequence

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.placement.layout import Layout
from storage_engine.tools.placement.leader_moves import LeaderSearch
from storage_engine.tools.placement.loads import Load, bands
from storage_engine.tools.placement.replica_moves import ReplicaSearch


def plan_rebalance(
    layout: Layout, by: Sequence[Load], tolerance: float
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the new replicas of the partitions that change. `tolerance`: a share of the mean, such
    as 0.1."""
    limits = bands(layout, by, tolerance)
    replicas = ReplicaSearch(layout, limits)
    replicas.spread()
    if any(load is not Load.LEADERS for load in by):
        while replicas.improve():
            pass
    if Load.LEADERS in by:
        LeaderSearch(layout, replicas.now, limits[Load.LEADERS]).improve()
    return {
        tp: target
        for tp, target in sorted(replicas.now.items())
        if target != layout.partitions[tp].final
    }
