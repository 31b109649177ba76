"""How long records have waited that are not in a table yet."""

from collections.abc import Mapping

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.protocol.typed.projection import WANT_STORED, TypedWant

MOST_PARTITIONS = 100
"""The partitions of a topic that are asked: each costs a fetch of a batch."""
_WAIT_MS = 5_000
_LEAST_BYTES = 1


def oldest_waiting_ms(
    cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]], *, is_typed: bool
) -> int | None:
    """The time of the oldest record in these ranges of one topic, which are not empty, by the
    first batch of each; None where there are only markers, or nothing comes in time."""
    chosen = dict(list(ranges.items())[:MOST_PARTITIONS])
    if not chosen:
        return None
    topic = next(iter(chosen)).topic
    reader = BatchFetcher(
        cluster,
        chosen,
        max_bytes=_LEAST_BYTES,
        isolation="read_committed",
        most_in_flight=0,
        typed_wants={topic: TypedWant(WANT_STORED)} if is_typed else None,
    )
    times: dict[TopicPartition, int | None] = {}
    deadline = Deadline.after(_WAIT_MS)
    try:
        while len(times) < len(chosen) and not deadline.passed:
            for fetched in reader.poll(deadline.left_ms):
                reader.forget(fetched.tp)
                found = (
                    header.base_timestamp
                    for _, header in iter_headers(fetched.records)
                    if not header.is_control and header.records_count
                )
                times[fetched.tp] = next(found, None)
    finally:
        reader.close()
    return min((each for each in times.values() if each is not None), default=None)
