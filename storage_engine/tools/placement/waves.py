"""Cuts reassignments into waves: so many partitions and bytes are under way at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.placement.layout import Layout
from storage_engine.tools.placement.reassign_plan import Plan

WAVE_PARTITIONS = 20
WAVE_BYTES = 10 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveLimits:
    partitions: int = WAVE_PARTITIONS
    bytes_copied: int = WAVE_BYTES
    """A partition that is larger has a wave of its own."""


def waves(plan: Plan, copied: Mapping[TopicPartition, int], limits: WaveLimits) -> Iterator[Plan]:
    """Yield the plan in its order. `copied`: the bytes that a partition's move copies."""
    wave: dict[TopicPartition, tuple[int, ...]] = {}
    size = 0
    for tp, target in plan.items():
        more = copied.get(tp, 0)
        if wave and (len(wave) >= limits.partitions or size + more > limits.bytes_copied):
            yield wave
            wave, size = {}, 0
        wave[tp] = target
        size += more
    if wave:
        yield wave


def bytes_copied(layout: Layout, plan: Plan) -> dict[TopicPartition, int]:
    """Return the bytes that each partition's move copies: its log, for each new replica."""
    return {
        tp: partition.size_bytes * new_replicas(partition.replicas, target)
        for tp, target in plan.items()
        if (partition := layout.partitions.get(tp)) is not None
    }


def new_replicas(before: Sequence[int], target: Sequence[int]) -> int:
    """Return how many replicas of the target have to be made."""
    return len(set(target).difference(before))
