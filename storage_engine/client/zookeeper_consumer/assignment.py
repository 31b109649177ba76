"""The range assignment over consumer streams: it decides which streams of a group read which
partitions.

Every member computes the same assignment from the same znodes. Of a topic's partitions, in the
order of their leaders and numbers, each stream, in the order of consumers and numbers, gets a run;
the first size(P) mod size(C) runs are longer by one, which the integer division in Kafka's document
leaves out. Streams beyond the partitions get none. Source: R-CLI3.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from storage_engine.core.ids import INTERNAL_TOPICS


class LedPartition(NamedTuple):
    """Sorted, partitions of one broker are side by side."""

    leader: int
    partition: int


def assign_topic(
    consumer: str, streams: Mapping[str, int], partitions: Iterable[LedPartition]
) -> dict[int, int]:
    """The partitions of a topic that `consumer` gets, each with the number of its stream. `streams`
    has the number of streams of each consumer that reads the topic, `consumer` among them."""
    before = sum(count for other, count in streams.items() if other < consumer)
    ordered = sorted(partitions)
    least, longer = divmod(len(ordered), sum(streams.values()))
    assigned: dict[int, int] = {}
    for stream in range(streams[consumer]):
        index = before + stream
        start = index * least + min(index, longer)
        if start >= len(ordered):
            break
        for led in ordered[start : start + least + (index < longer)]:
            assigned[led.partition] = stream
    return assigned


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Topics by a pattern that whole names match (white list) or do not (black list). The brokers'
    own topics pass no filter."""

    pattern: re.Pattern[str]
    allows: bool

    @classmethod
    def white_list(cls, pattern: str | re.Pattern[str]) -> "TopicFilter":
        return cls(re.compile(pattern), allows=True)

    @classmethod
    def black_list(cls, pattern: str | re.Pattern[str]) -> "TopicFilter":
        return cls(re.compile(pattern), allows=False)

    def passes(self, topic: str) -> bool:
        matches = self.pattern.fullmatch(topic) is not None
        return topic not in INTERNAL_TOPICS and matches == self.allows


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """The number of streams that a consumer wants for each topic, or over all topics of a
    filter."""

    by_topic: Mapping[str, int]
    filter: TopicFilter | None = None
    filtered: int = 0

    def of(self, topics: Iterable[str]) -> dict[str, int]:
        """The wanted streams by topic, for the topics that exist."""
        if self.filter is None:
            return dict(self.by_topic)
        return {topic: self.filtered for topic in topics if self.filter.passes(topic)}
