"""The loads of brokers, and how far they are from the mean."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import ceil, floor
from typing import NamedTuple

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.placement.layout import Layout, PlacedPartition


class Load(StrEnum):
    """A load of a broker that can be evened out."""

    REPLICAS = "replicas"
    BYTES = "bytes"
    LEADERS = "leaders"
    RATES = "rates"


class Band(NamedTuple):
    """The loads that are near enough to the mean."""

    mean: float
    lowest: float
    highest: float

    def beyond(self, load: float) -> float:
        """Return the square of the distance from the band, as a share of the mean."""
        distance = max(load - self.highest, self.lowest - load, 0.0)
        return (distance / (self.mean or 1.0)) ** 2


Loads = dict[int, dict[Load, float]]
"""By broker."""


def loads(layout: Layout, plan: Mapping[TopicPartition, Sequence[int]]) -> Loads:
    """Return the loads of each broker that is known or has replicas, once the plan is executed."""
    found: Loads = {broker: dict.fromkeys(Load, 0.0) for broker in layout.brokers}
    for tp, partition in layout.partitions.items():
        replicas = plan.get(tp, partition.final)
        for broker in replicas:
            of_broker = found.setdefault(broker, dict.fromkeys(Load, 0.0))
            for load, weight in replica_loads(partition).items():
                of_broker[load] += weight
        found[replicas[0]][Load.LEADERS] += 1
    return found


def replica_loads(partition: PlacedPartition) -> dict[Load, float]:
    """Return how much each replica of the partition adds to the loads of its broker."""
    return {
        Load.REPLICAS: 1.0,
        Load.BYTES: float(partition.size_bytes),
        Load.RATES: partition.bytes_per_s,
    }


def bands(layout: Layout, by: Sequence[Load], tolerance: float) -> dict[Load, Band]:
    """Return the band of each load. Numbers of replicas and leaders may always differ by one."""
    takers = layout.takers()
    of_all = loads(layout, {})
    found = {}
    for load in by:
        mean = sum(of_all[broker][load] for broker in takers) / max(len(takers), 1)
        lowest, highest = mean * (1 - tolerance), mean * (1 + tolerance)
        if load in (Load.REPLICAS, Load.LEADERS):
            lowest, highest = min(lowest, floor(mean)), max(highest, ceil(mean))
        found[load] = Band(mean, lowest, highest)
    return found


def beyond(
    layout: Layout, plan: Mapping[TopicPartition, Sequence[int]], limits: Mapping[Load, Band]
) -> dict[Load, float]:
    """Return how far the brokers that take replicas are beyond the bands, in squares; 0 where all
    are near the mean."""
    of_all = loads(layout, plan)
    return {
        load: sum(band.beyond(of_all[broker][load]) for broker in layout.takers())
        for load, band in limits.items()
    }
