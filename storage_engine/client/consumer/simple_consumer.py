"""Fetches from offsets that its user keeps: a consumer without a group, and without a position.

    from storage_engine.client import EARLIEST, SimpleConsumer, TopicPartition

    with SimpleConsumer("127.0.0.1:9092") as consumer:
        clicks = TopicPartition("clicks", 0)
        (offset,) = consumer.offsets_before(clicks, EARLIEST, 1)
        messages, offset, _ = consumer.fetch(clicks, offset)

It remembers nothing between calls but connections and leaders, so its user may go back at any time.
Source: R-CLI2.
"""

from collections.abc import Mapping
from typing import NamedTuple

from storage_engine.client.closing import Closing
from storage_engine.client.cluster import DEADLINE_MS, EARLIEST, LATEST, Cluster
from storage_engine.client.consumer.consumer_record import ConsumerRecord
from storage_engine.client.consumer.record_buffer import Piece
from storage_engine.client.fetching.fetch import MAX_WAIT_MS, BatchFetcher
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.security.security_rows import Given
from storage_engine.client.settings import FETCH_BYTES, client_security
from storage_engine.client.turn import Turn, in_turn
from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline

_OTHERS_MS = 20
"""How long to wait for other leaders once one has answered: usually their answers are on the way.
"""


class Fetched(NamedTuple):
    """The messages fetched from one partition."""

    messages: list[ConsumerRecord]
    """Messages from the requested offset on; empty when none has arrived in time."""
    next_offset: int
    """The offset of the next fetch."""
    high_watermark: int
    """The end of the readable records, exclusive; -1 when no answer has arrived."""


class SimpleConsumer(Closing):
    """A consumer whose caller keeps the offsets. Calls of several threads are done one after the
    other."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "headrace",
        isolation: str = "read_uncommitted",
        deadline_ms: int = DEADLINE_MS,
        security: Given | None = None,
    ) -> None:
        """Opens nothing before the first call. `deadline_ms`: for a leader to be found. `security`:
        the settings of security, by Kafka's names."""
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            deadline_ms=deadline_ms,
            security=client_security(security or {}, client="simple consumer"),
        )
        self._turn = Turn("simple consumer", lambda _: self._cluster.close())
        self._isolation = isolation

    def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
    ) -> Fetched:
        """The messages from `offset` on: one batch at least, of whatever size, and about
        `max_bytes` at most. OffsetOutOfRangeError, with the range that there is, for an offset
        outside of the log."""
        return self.multifetch({tp: offset}, max_bytes=max_bytes, max_wait_ms=max_wait_ms)[tp]

    @in_turn
    def multifetch(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_bytes: int = FETCH_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
    ) -> dict[TopicPartition, Fetched]:
        """Like `fetch`, but for many partitions: those of one leader are in one request of
        `max_bytes`. It returns when some partitions have messages."""
        wanted = {TopicPartition(*tp): offset for tp, offset in offsets.items()}
        for tp, offset in wanted.items():
            if offset < 0:
                raise ConfigError(f"{tp}: the offset {offset} is negative; see offsets_before")
            self._cluster.leader(tp)
        found = {tp: Fetched([], offset, -1) for tp, offset in wanted.items()}
        reader = BatchFetcher(
            self._cluster,
            {tp: (offset, None) for tp, offset in wanted.items()},
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            isolation=self._isolation,
            most_in_flight=0,
        )
        deadline = Deadline.after(max_wait_ms)
        try:
            while wanted:
                came = reader.poll(deadline.left_ms)
                for fetched in came:
                    found[fetched.tp] = _decoded(fetched)
                    reader.forget(fetched.tp)
                    del wanted[fetched.tp]
                if deadline.passed:
                    break
                if came:
                    deadline = deadline.no_later_than(_OTHERS_MS)
        finally:
            reader.close()
        return found

    @in_turn
    def offsets_before(self, tp: TopicPartition, time_ms: int, max_offsets: int) -> list[int]:
        """At most `max_offsets` offsets to begin at, in descending order: the first is where
        messages of that time or later begin (`LATEST` means the end of the log, `EARLIEST` its
        beginning), the last is the beginning of the log, and the others divide the range between
        them into equal parts."""
        if max_offsets < 1:
            raise ConfigError(f"{max_offsets} offsets are asked for; it must be 1 or more")
        start, end = (self._offset(tp, EARLIEST), self._offset(tp, LATEST))
        before = end if time_ms == LATEST else start if time_ms == EARLIEST else None
        if before is None:
            found = self._offset(tp, time_ms)
            # None is that young: all are before.
            before = end if found < 0 else found
        parts = max(1, max_offsets - 1)
        cuts = [before - (before - start) * part // parts for part in range(max_offsets)]
        return list(dict.fromkeys(cuts))

    def _offset(self, tp: TopicPartition, time_ms: int) -> int:
        tp = TopicPartition(*tp)
        return self._cluster.list_offsets({tp: time_ms}, isolation=self._isolation)[tp]

    def close(self) -> None:
        """Close all connections, after the call that is at work."""
        self._turn.end()


def _decoded(fetched: FetchedBatches) -> Fetched:
    piece = Piece(fetched)
    messages: list[ConsumerRecord] = []
    while piece.load():
        messages += piece.rows
        piece.index = piece.count
    return Fetched(messages, fetched.next_offset, fetched.high_watermark)
