"""Plans which records make the next micro-batch. Every record of every partition is planned once.

Source: maxOffsetsPerTrigger of Spark's Kafka connector.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from connector.source.stream_offset import StreamOffset, recreated_topics
from storage_engine.core.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMicroBatch:
    """The end of the next micro-batch. `losses` are sentences about what can't be read any more."""

    end: StreamOffset
    losses: tuple[str, ...]
    backlog: int
    """The number of offsets from the start to the latest, before any limit."""


def restarted_partitions(
    start: StreamOffset,
    latest: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, UUID],
) -> list[TopicPartition]:
    """The partitions to read from their first record: they are new, belong to a topic that was
    created again, or end before the position of the query and may have been created again."""
    recreated = recreated_topics(start.topic_ids, topic_ids)
    return [
        topic_partition
        for topic_partition, latest_offset in latest.items()
        if topic_partition.topic in recreated
        or topic_partition not in start.positions
        or (
            start.positions[topic_partition] > latest_offset
            and not _is_same(topic_partition.topic, start.topic_ids, topic_ids)
        )
    ]


def plan_next(
    start: StreamOffset,
    *,
    latest: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    max_offsets: int | None,
    topic_ids: Mapping[str, UUID],
) -> PlannedMicroBatch:
    """The micro-batch after `start`. `earliest` must have the `restarted_partitions`; for others it
    shows that earlier records are gone, and must not count for the limit. `topic_ids` are the
    present ones."""
    losses = []
    begins = {}
    recreated = recreated_topics(start.topic_ids, topic_ids)
    for each, latest_offset in latest.items():
        begins[each], loss = _begin(
            start,
            each,
            latest=latest_offset,
            earliest=earliest.get(each),
            is_recreated=each.topic in recreated,
            is_same=_is_same(each.topic, start.topic_ids, topic_ids),
        )
        losses += [] if loss is None else [loss]
    gone = sorted(start.positions.keys() - latest.keys())
    losses += [f"{each}, read up to offset {start.positions[each]}, is gone" for each in gone]
    backlog = {
        topic_partition: max(0, latest[topic_partition] - begin)
        for topic_partition, begin in begins.items()
    }
    shares = share_out(backlog, limit=max_offsets, turn=sum(begins.values()))
    positions = {each: begin + shares[each] for each, begin in begins.items()}
    return PlannedMicroBatch(
        end=StreamOffset(
            positions=positions,
            begins=begins,
            topic_ids=_known_ids({each.topic for each in positions}, topic_ids, start.topic_ids),
            query=start.query,
        ),
        losses=tuple(losses),
        backlog=sum(backlog.values()),
    )


def _begin(
    start: StreamOffset,
    topic_partition: TopicPartition,
    *,
    latest: int,
    earliest: int | None,
    is_recreated: bool,
    is_same: bool,
) -> tuple[int, str | None]:
    """The micro-batch's first offset in a partition; and the loss there as a sentence, if any."""
    position = start.positions.get(topic_partition)
    first = 0 if earliest is None else earliest
    if is_recreated:
        loss = (
            f"{topic_partition} was read up to offset {position}, and its topic was deleted and "
            "created again since"
        )
        return first, None if position is None else loss
    if position is None:
        loss = (
            f"the new partition {topic_partition} begins at offset {first}, not at 0: its first "
            "records are gone"
        )
        return first, loss if first > 0 and not start.is_initial else None
    if position > latest:
        loss = (
            f"{topic_partition} was read up to offset {position} and now ends at {latest}: it was "
            f"cut{'' if is_same else ', or deleted and created again'}"
        )
        # What is left of the same log was read: it would come twice.
        return latest if is_same else first, loss
    if position < first:
        return (
            first,
            f"{topic_partition} was read up to offset {position} and now begins at {first}",
        )
    return position, None


def _is_same(topic: str, before: Mapping[str, UUID], now: Mapping[str, UUID]) -> bool:
    """Whether both ids are known, and equal."""
    return topic in before and before[topic] == now.get(topic)


def _known_ids(
    topics: Iterable[str], now: Mapping[str, UUID], before: Mapping[str, UUID]
) -> dict[str, UUID]:
    """The ids of `topics`; one that a broker does not know now stays as before."""
    known = {**before, **now}
    return {topic: known[topic] for topic in topics if topic in known}


def share_out(
    backlog: Mapping[TopicPartition, int], *, limit: int | None, turn: int
) -> dict[TopicPartition, int]:
    """How many offsets of each partition to read: `limit` in all, in proportion to the backlog, and
    at least one of each that has any. With a limit below the number of waiting partitions they take
    turns by `turn`, any number that grows with what was read.
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
    # One for each, the rest in proportion. What rounding leaves goes to the largest remainders.
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
