"""maxOffsetsPerTrigger: which part of a backlog the next micro-batch reads."""

from collections.abc import Mapping

from storage_engine.core.ids import TopicPartition


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
