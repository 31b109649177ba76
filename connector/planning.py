"""Which records make the next batch, and which task reads which of them. Pure: offsets in, offsets
out.

Its one rule: every record of every partition is planned once; a limit delays a partition and never
starves it. Source: Spark's Kafka connector, maxOffsetsPerTrigger and minPartitions (FACTS.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from connector.offsets import OffsetRange, StreamOffset, recreated_topics, total_records
from storage_engine.core.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """The end of the next batch; `losses` says in sentences what can't be read any more."""

    end: StreamOffset
    losses: tuple[str, ...]
    backlog: int
    """Offsets between start and the latest, before any limit."""


def restarted_partitions(
    start: StreamOffset,
    latest: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, UUID],
) -> list[TopicPartition]:
    """Partitions to read from their first record on: they are new, of a topic that was created
    again, or end before where we were."""
    recreated = recreated_topics(start.topic_ids, topic_ids)
    return [
        topic_partition
        for topic_partition, latest_offset in latest.items()
        if topic_partition.topic in recreated
        or start.positions.get(topic_partition, latest_offset + 1) > latest_offset
    ]


def plan_next(
    start: StreamOffset,
    *,
    latest: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    max_offsets: int | None,
    topic_ids: Mapping[str, UUID],
) -> PlannedBatch:
    """The batch after `start`. `earliest` is needed for the `restarted_partitions` only;
    `topic_ids` are those of now."""
    losses = []
    begins = {}
    recreated = recreated_topics(start.topic_ids, topic_ids)
    for topic_partition, latest_offset in latest.items():
        position = start.positions.get(topic_partition)
        if topic_partition.topic in recreated:
            begins[topic_partition] = earliest[topic_partition]
            if position is not None:
                losses.append(
                    f"{topic_partition} was read up to offset {position}, and its topic was "
                    "deleted and created again since"
                )
        elif position is None:
            begins[topic_partition] = earliest[topic_partition]
            if begins[topic_partition] > 0 and not start.is_initial:
                losses.append(
                    f"the new partition {topic_partition} begins at offset "
                    f"{begins[topic_partition]}, not at 0: its first records are gone"
                )
        elif position > latest_offset:
            begins[topic_partition] = earliest[topic_partition]
            losses.append(
                f"{topic_partition} was read up to offset {position} and now ends at "
                f"{latest_offset}: it was cut, or deleted and created again"
            )
        else:
            begins[topic_partition] = position
    losses += [
        f"{topic_partition}, read up to offset {start.positions[topic_partition]}, is gone"
        for topic_partition in sorted(start.positions.keys() - latest.keys())
    ]
    backlog = {
        topic_partition: max(0, latest[topic_partition] - begin)
        for topic_partition, begin in begins.items()
    }
    shares = share_out(backlog, limit=max_offsets, turn=sum(begins.values()))
    positions = {
        topic_partition: begin + shares[topic_partition]
        for topic_partition, begin in begins.items()
    }
    return PlannedBatch(
        end=StreamOffset(
            positions=positions,
            begins=begins,
            topic_ids=_known_ids({each.topic for each in positions}, topic_ids, start.topic_ids),
            query=start.query,
        ),
        losses=tuple(losses),
        backlog=sum(backlog.values()),
    )


def _known_ids(
    topics: Iterable[str], now: Mapping[str, UUID], before: Mapping[str, UUID]
) -> dict[str, UUID]:
    """A broker that does not tell an id takes none away."""
    known = {**before, **now}
    return {topic: known[topic] for topic in topics if topic in known}


def share_out(
    backlog: Mapping[TopicPartition, int], *, limit: int | None, turn: int
) -> dict[TopicPartition, int]:
    """How many records of each partition to take: `limit` in all, in proportion to the backlog, at
    least one of each that has any. With fewer to give than partitions wait, `turn` (any number that
    grows with what has been given) decides whose turn it is.
    """
    total = sum(backlog.values())
    if limit is None or limit >= total:
        return dict(backlog)
    shares = dict.fromkeys(backlog, 0)
    waiting = sorted(topic_partition for topic_partition, size in backlog.items() if size > 0)
    if limit < len(waiting):
        for place in range(limit):
            shares[waiting[(turn + place) % len(waiting)]] = 1
        return shares
    # One for each, the rest in proportion; what rounding leaves over goes to the largest
    # remainders.
    spare, spare_total = limit - len(waiting), total - len(waiting)
    remainders = []
    for topic_partition in waiting:
        share, remainder = divmod(spare * (backlog[topic_partition] - 1), max(1, spare_total))
        shares[topic_partition] = 1 + share
        remainders.append((-remainder, topic_partition))
    left_over = limit - sum(shares.values())
    for _, topic_partition in sorted(remainders)[:left_over]:
        shares[topic_partition] += 1
    return shares


def split_ranges(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None,
    max_records_per_partition: int | None,
    max_offsets_by_size: Mapping[TopicPartition, int],
) -> list[OffsetRange]:
    """One range a task: cut to at most `max_records_per_partition`, to at most as many as
    `max_offsets_by_size` allows, and into at least `min_partitions` where there are that many
    records. All three count offsets: where compaction, markers or aborted records leave gaps, a
    task gets fewer records, never more.
    """
    whole = [offset_range for offset_range in ranges if len(offset_range)]
    piece = max_records_per_partition or max((len(each) for each in whole), default=1)
    if min_partitions is not None and min_partitions > len(whole):
        piece = min(piece, max(1, total_records(whole) // min_partitions))
    return [
        part
        for each in whole
        for part in _cut(each, min(piece, max_offsets_by_size.get(each.topic_partition, piece)))
    ]


def _cut(offset_range: OffsetRange, piece: int) -> list[OffsetRange]:
    size = len(offset_range)
    parts = -(-size // piece)
    bounds = [offset_range.start_offset + size * part // parts for part in range(parts + 1)]
    return [
        replace(offset_range, start_offset=start, end_offset=end) for start, end in pairwise(bounds)
    ]
