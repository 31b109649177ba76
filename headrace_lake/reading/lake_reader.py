"""Reads partitions of many topics at once, each from a position on, as whole batches.

A position is an offset and the leader epoch of the batch before it, so the leader of a partition
notices where it never had what was read. Brokers that would not look at that, or not at a topic's
id, are not read from. A partition that can't be read on is taken out and told; the others are read
on.
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.typed.projection import TypedWant

FETCH_BYTES = 2 << 20
"""The most of one answer of a leader; one more is on its way meanwhile."""


class Position(NamedTuple):
    """Where reading goes on."""

    offset: int
    """The next record's, behind whatever of the log was consumed: also behind markers and aborted
    records that give no rows."""
    leader_epoch: int = -1
    """The epoch of the last batch before the offset; -1: not known, or there is none."""


class LakeReader:
    """For one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._failed: dict[TopicPartition, HeadraceError] = {}
        self._fetcher = BatchFetcher(
            cluster,
            {},
            max_bytes=FETCH_BYTES,
            isolation="read_committed",
            topic_ids={},
            only_by_id=True,
            on_failed=self._give_up,
        )
        self._positions: dict[TopicPartition, Position] = {}

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to poll."""
        return not self._positions

    def begin(
        self, tp: TopicPartition, position: Position, topic_id: UUID, want: TypedWant | None
    ) -> None:
        """Read a partition of this very topic from there on; what is under way is dropped."""
        self._failed.pop(tp, None)
        self._positions[tp] = position
        self._fetcher.read_from(
            tp, position.offset, want, last_epoch=position.leader_epoch, topic_id=topic_id
        )

    def end(self, tp: TopicPartition) -> None:
        """Read the partition no more."""
        self._failed.pop(tp, None)
        if self._positions.pop(tp, None) is not None:
            self._fetcher.forget(tp)

    def pause(self, tp: TopicPartition, *, paused: bool) -> None:
        """Pause or resume the partition; answers under way still come."""
        if tp in self._positions:
            self._fetcher.pause(tp, paused=paused)

    def poll(self, wait_ms: int) -> list[FetchedBatches]:
        """Return what has come, each partition from its position on. AuthenticationError, and
        KafkaError where the brokers can't serve the reader at all."""
        return self._fetcher.poll(wait_ms)

    def consumed(self, fetched: FetchedBatches) -> Position | None:
        """The position behind these batches, which is now that of the partition; None for what was
        polled before the partition was begun anew, or given up: it is to be dropped."""
        known = self._positions.get(fetched.tp)
        if known is None or known.offset != fetched.start_offset:
            return None
        position = Position(fetched.next_offset, fetched.last_epoch)
        self._positions[fetched.tp] = position
        return position

    def failures(self) -> Mapping[TopicPartition, HeadraceError]:
        """Partitions that were given up since this was asked before, and why."""
        failed, self._failed = self._failed, {}
        return failed

    def _give_up(self, tp: TopicPartition, _: int, error: HeadraceError) -> None:
        if self._positions.pop(tp, None) is not None:
            self._failed[tp] = error

    def close(self) -> None:
        """Give the connections back."""
        self._fetcher.close()
