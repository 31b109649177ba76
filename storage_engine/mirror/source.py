"""A cluster that a mirror copies from: its topics, and their batches from the mirror's positions
on.

After an error a new reader begins at the mirror's positions, because the old one may have lost
batches that it had fetched. A source that has answered once may be away for any time: the others
are copied meanwhile. Source: R-CLI6.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from uuid import UUID

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms, sleep_ms
from storage_engine.protocol.typed.projection import WANT_STORED, TypedWant

DEADLINE_MS = 10_000
"""The timeout of requests to a source: it is longer than a failover, and other sources wait for
it."""

ANSWER_MS = 5_000
"""A source none of whose brokers answers within this time is away."""

AWAY_MS = 15_000
"""How long a source that is away is not asked again."""

READ_COMMITTED = "read_committed"

FETCH_BYTES = 4 << 20

Tell = Callable[[str], None]
"""Prints a line for the operator."""


class SourceShrunkError(HeadraceError):
    """A source has fewer records than were copied from it."""


class MirrorSource:
    """A cluster to copy from; `name` is the operator's name for it."""

    def __init__(self, name: str, cluster: Cluster, report: Tell) -> None:
        self.name = name
        self.cluster = cluster
        self.skipped = 0
        """Offsets that retention, or somebody's command, has deleted before they were copied."""
        self._report = report
        self._positions: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._wants: dict[str, TypedWant] = {}
        self._jumped: dict[TopicPartition, int] = {}
        self._topics: dict[str, tuple[UUID, int]] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._has_answered = False
        self._away_until_ms = 0
        self._ends_due_ms = 0
        self._reader: BatchFetcher | None = None

    def topics(self) -> dict[str, tuple[UUID, int]]:
        """Id and number of partitions of those that are not the brokers' own, asked for anew, but
        as they were while the source is away."""
        if not self._is_away:
            try:
                wait_ms = ANSWER_MS if self._has_answered else self.cluster.deadline_ms
                self.cluster.refresh(None, Deadline.after(wait_ms))
            except HeadraceError as error:
                self._raise_if_final(error)
                self._away_until_ms = monotonic_ms() + AWAY_MS
                self._report(f"{self.name} is asked again in {AWAY_MS // 1000} s: {error}")
            else:
                self._has_answered = True
                self._topics = {
                    name: (topic.topic_id, len(topic.partitions))
                    for name, topic in self.cluster.view.topics.items()
                    if not topic.is_internal
                }
        return self._topics

    @property
    def _is_away(self) -> bool:
        return monotonic_ms() < self._away_until_ms

    def _raise_if_final(self, error: HeadraceError) -> None:
        """Unless the source has answered before, and may again."""
        silent = isinstance(error, DeadlineExceededError) or (
            isinstance(error, KafkaError)
            and (error.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE)
        )
        if not silent or not self._has_answered:
            raise error

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offsets of the partitions."""
        return self.cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))

    def ends(self) -> dict[TopicPartition, int]:
        """The exclusive ends, for read_committed, of the partitions that are read."""
        wanted = dict.fromkeys(self._positions, LATEST)
        return self.cluster.list_offsets(wanted, isolation=READ_COMMITTED)

    def known_ends(self) -> dict[TopicPartition, int]:
        """Like `ends`, but with the last known end where the source does not answer."""
        if not self._is_away and monotonic_ms() >= self._ends_due_ms:
            try:
                self._ends = self.ends()
            except HeadraceError as error:
                self._raise_if_final(error)
                self._ends_due_ms = monotonic_ms() + AWAY_MS
                self._report(f"lag of {self.name}: {error}")
        return {tp: self._ends.get(tp, offset) for tp, offset in self._positions.items()}

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """By partition that is read, the next offset that `poll` brings."""
        return self._positions

    def jumps(self) -> dict[TopicPartition, int]:
        """Positions that have moved without records since this was asked before."""
        jumped, self._jumped = self._jumped, {}
        return jumped

    def read(
        self,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, UUID],
        typed: Collection[str] = (),
    ) -> None:
        """Reads these partitions from now on, each from its offset, and no others; of topics with
        these ids, whatever else has their names by then. Of topics in `typed` come their batches as
        they are stored, of others with a schema JSON records."""
        self._positions = dict(positions)
        # They were of what was read before, which may be another topic of the name.
        self._jumped = {}
        self._topic_ids = dict(topic_ids)
        self._wants = dict.fromkeys(typed, TypedWant(WANT_STORED))
        self.close()

    def poll(self, wait_ms: int) -> list[FetchedBatches]:
        """Returns the batches that have come. Raises an error of which `is_gone` is true when a
        topic is gone, or is another one now."""
        if not self._positions or self._is_away:
            sleep_ms(wait_ms)
            return []
        if self._reader is None:
            self._reader = BatchFetcher(
                self.cluster,
                {tp: (offset, None) for tp, offset in self._positions.items()},
                max_bytes=FETCH_BYTES,
                isolation=READ_COMMITTED,
                on_out_of_range=self._go_on_at,
                on_truncated=self._truncated,
                topic_ids=self._topic_ids,
                typed_wants=self._wants,
            )
        try:
            found = self._reader.poll(wait_ms)
        except HeadraceError as error:
            self.close()
            if is_gone(error):
                raise
            self._raise_if_final(error)
            self._report(f"{self.name}: {error}")
            return []
        for fetched in found:
            self._positions[fetched.tp] = fetched.next_offset
        return found

    def _go_on_at(self, tp: TopicPartition, offset: int, start: int, end: int) -> int:
        if offset > end:
            raise SourceShrunkError(
                f"{tp} of {self.name} ends at offset {end}, but was copied up to {offset}: the "
                "source has lost records (an unclean election?); delete the topic in the target to "
                "copy it anew"
            )
        self._report(
            f"{tp} of {self.name}: offsets {offset} to {start - 1} were deleted in the source "
            "before they were copied"
        )
        self.skipped += start - offset
        self._positions[tp] = self._jumped[tp] = start
        return start

    def _truncated(self, tp: TopicPartition, offset: int, truncation_offset: int) -> int:
        raise SourceShrunkError(
            f"{tp} of {self.name} was copied up to offset {offset}, but has other records from "
            f"offset {truncation_offset} on: the source has lost records (an unclean election?); "
            "delete the topic in the target to copy it anew"
        )

    def close(self) -> None:
        """Give the connections back; `poll` takes new ones."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def is_gone(error: HeadraceError) -> bool:
    """Whether `poll` has failed because a topic was deleted, and perhaps created again."""
    return isinstance(error, KafkaError) and error.code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
