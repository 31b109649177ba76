"""The partitions of a consumer: where each begins, what was fetched, and what was returned to the
user.

A partition is fetched from its position on: the one that was sought, else the committed one, else
the end that `auto.offset.reset` names. A position that can't be determined is looked up again at
the next call; after `default.api.timeout.ms` the error is raised. Source: R-CLI2.

Topics with a schema are fetched as records, or as columns. A partition whose topic may have one
waits with its position until the schema is known, and again when a batch has a later version of it
or the user wants other columns: what was fetched and not returned is then fetched anew.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.consumer.consumer_config import CONSUMER_PROTOCOL, ConsumerConfig
from storage_engine.client.consumer.consumer_config import EARLIEST as EARLIEST_RESET
from storage_engine.client.consumer.consumer_config import NONE as NO_RESET
from storage_engine.client.consumer.consumer_errors import NoOffsetError
from storage_engine.client.consumer.consumer_record import ConsumerRecord
from storage_engine.client.consumer.record_buffer import Piece, RecordBuffer, TakenBatch
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.fetching.typed_reading import (
    Selection,
    TypedReading,
    TypedReadings,
    check_alike,
)
from storage_engine.client.groups.committed_offsets import committed_offsets
from storage_engine.client.groups.group_requests import NOBODY, MemberIdentity
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms

if TYPE_CHECKING:
    import pyarrow as pa

_FIND_MS = 1_000
"""The time for one attempt to find positions; records of other partitions wait meanwhile."""

_RETRY_MS = 100

_LATER = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        # The next heartbeat brings the present epoch, or takes the partitions away.
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
"""Errors that are none any more after a while, though not by asking again at once."""

log = logging.getLogger(__name__)

Committed = Callable[[Cluster, Collection[TopicPartition]], Mapping[TopicPartition, int]]
"""The committed offsets that exist of partitions; requested when they are assigned."""


class Positions:
    """The positions of the assigned partitions. For one thread."""

    def __init__(
        self,
        config: ConsumerConfig,
        committed: Committed | None = None,
        *,
        identity: Callable[[], MemberIdentity] = lambda: NOBODY,
    ) -> None:
        """`committed`: None for the offsets that the group's coordinator has stored, and gives to
        the member of that identity."""
        self._config = config
        self._identity = identity
        self._committed = committed or self._of_group
        self._cluster = config.cluster(deadline_ms=_FIND_MS)
        self._fetches = config.cluster(unknown_topic_wait_ms=config.default_api_timeout_ms)
        self._reader = BatchFetcher(
            self._fetches,
            {},
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            isolation=config.isolation_level,
            on_out_of_range=self._out_of_range,
            on_truncated=self._truncated,
        )
        self._buffer = RecordBuffer()
        self.assigned: dict[TopicPartition, None] = {}
        """The assigned partitions in the order of their assignment."""
        self.paused: set[TopicPartition] = set()
        self._missing: set[TopicPartition] = set()
        """Assigned, and nobody knows where they begin."""
        # How topics with a schema are read; None: as records.
        self._selection: Selection | None = None
        self._readings = TypedReadings(self._cluster)
        # Where partitions go on whose topics' schemas are to be looked up first.
        self._waiting: dict[TopicPartition, int] = {}
        # By topic, what was fetched and is of a later schema than is known.
        self._outdated: dict[str, FetchedBatches] = {}
        self._failing_since_ms: int | None = None
        self._find_at_ms = 0

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions; partitions that were assigned before go on."""
        wanted = dict.fromkeys(partitions)
        for tp in [tp for tp in self.assigned if tp not in wanted]:
            self._buffer.drop(tp)
            self._reader.forget(tp)
            self._waiting.pop(tp, None)
            self.paused.discard(tp)
        self._missing &= set(wanted)
        self._missing |= {tp for tp in wanted if tp not in self.assigned}
        self.assigned = wanted
        self._find_at_ms = 0

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Moves the position of an assigned partition."""
        self._missing.discard(tp)
        self._buffer.begin(tp, offset)
        if self._selection is None or self._is_clear(tp.topic):
            self._start(tp, offset)
        else:
            self._reader.forget(tp)
            self._waiting[tp] = offset

    def _start(self, tp: TopicPartition, offset: int) -> None:
        """Fetches on from there, in the shape that the user wants."""
        self._waiting.pop(tp, None)
        reading = None if self._selection is None else self._readings.known(tp.topic)
        self._reader.read_from(tp, offset, None if reading is None else reading.want)
        self._reader.pause(tp, paused=tp in self.paused)

    def pause(self, tp: TopicPartition, *, paused: bool) -> None:
        if paused:
            self.paused.add(tp)
        else:
            self.paused.discard(tp)
        if tp not in self._missing and tp not in self._waiting:
            self._reader.pause(tp, paused=paused)

    def read_as(self, selection: Selection | None) -> None:
        """Read topics with a schema as these columns from now on; None: as records. What is
        buffered of them in another shape is fetched anew."""
        if selection == self._selection:
            return
        positions = self.known()
        typed = {
            tp
            for tp in positions
            if self._selection is None
            or tp in self._waiting
            or self._readings.known(tp.topic) is not None
        }
        self._selection = selection
        self._outdated.clear()
        if selection is not None:
            self._readings.select(selection)
        for tp in typed:
            self.seek(tp, positions[tp])

    def known(self) -> dict[TopicPartition, int]:
        """The positions that are known, of assigned partitions."""
        return self._buffer.positions

    def find(self) -> None:
        """Find out where partitions begin, and what their topics' schemas are, if that is missing
        and it is time to."""
        now_ms = monotonic_ms()
        if not (self._missing or self._waiting) or now_ms < self._find_at_ms:
            return
        try:
            if self._missing:
                for tp, offset in self._beginnings().items():
                    self.seek(tp, offset)
            self._learn_schemas()
        except (KafkaError, DeadlineExceededError) as error:
            self._not_found(error, now_ms)
        else:
            self._failing_since_ms = None

    def _learn_schemas(self) -> None:
        """Starts the partitions that wait for their topic's schema."""
        for topic in {tp.topic for tp in self._waiting}:
            fetched = self._outdated.get(topic)
            if fetched is None:
                self._readings.of(topic)
            else:
                self._readings.renewed(topic, fetched)
                del self._outdated[topic]
        topics = {tp.topic for tp in self.assigned}
        check_alike({name: self._readings.known(name) for name in topics if self._is_clear(name)})
        for tp, offset in list(self._waiting.items()):
            self._start(tp, offset)

    def _is_clear(self, topic: str) -> bool:
        """Whether it is known how to read the topic."""
        return self._readings.is_known(topic) and topic not in self._outdated

    def _not_found(self, error: HeadraceError, now_ms: int) -> None:
        """Raise it where trying again is no use. Brokers that are busy answer later."""
        later = isinstance(error, KafkaError) and error.code in _LATER
        if isinstance(error, KafkaError) and not error.retriable and not later:
            raise error
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        elif now_ms - self._failing_since_ms > self._config.default_api_timeout_ms:
            self._failing_since_ms = None
            raise error
        self._find_at_ms = monotonic_ms() + _RETRY_MS

    def _beginnings(self) -> dict[TopicPartition, int]:
        stored = self._committed(self._cluster, self._missing)
        found = {tp: stored[tp] for tp in self._missing if tp in stored}
        left = self._missing - found.keys()
        if not left:
            return found
        reset = self._config.auto_offset_reset
        if reset == NO_RESET:
            group = self._config.group_id or "none"
            raise NoOffsetError(
                f"group '{group}' has no committed offset for {min(left)}, and auto.offset.reset "
                "is none: seek to an offset, or set auto.offset.reset to earliest or latest"
            )
        end = EARLIEST if reset == EARLIEST_RESET else LATEST
        wanted = dict.fromkeys(left, end)
        isolation = self._config.isolation_level
        return found | self._cluster.list_offsets(wanted, isolation=isolation)

    def _of_group(
        self, cluster: Cluster, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        group = self._config.group_id
        if group is None:
            return {}
        knows_epochs = self._config.group_protocol == CONSUMER_PROTOCOL
        member = self._identity() if knows_epochs else NOBODY
        return committed_offsets(cluster, group, partitions, member)

    def _out_of_range(self, tp: TopicPartition, offset: int, start: int, end: int) -> int:
        reset = self._config.auto_offset_reset
        if reset == NO_RESET:
            raise OffsetOutOfRangeError(
                f"{tp}: offset {offset} is out of range, the log has offsets {start} to {end} "
                "(exclusive), and auto.offset.reset is none: seek",
                log_start_offset=start,
                log_end_offset=end,
            )
        going_on_at = start if reset == EARLIEST_RESET else end
        # A commit before the next record must not store the offset that is out of range: who goes
        # on from it would be sent to the end of a log that has grown by then.
        self._buffer.go_on_at(tp, going_on_at)
        return going_on_at

    def _truncated(self, tp: TopicPartition, offset: int, truncation_offset: int) -> int:
        """Does what Kafka's consumer does: with auto.offset.reset, it continues with the records
        that the log has now."""
        if self._config.auto_offset_reset == NO_RESET:
            raise LogTruncatedError(
                f"{tp}: the log was truncated: it was read up to offset {offset}, and from offset "
                f"{truncation_offset} on it has other records now; auto.offset.reset is none: seek",
                offset=offset,
                truncation_offset=truncation_offset,
            )
        log.warning(
            "log truncated partition=%s: read up to offset=%d, goes on at offset=%d, from which on"
            " it has other records now",
            tp,
            offset,
            truncation_offset,
        )
        self._buffer.go_on_at(tp, truncation_offset)
        return truncation_offset

    # --- records ---

    def fetch(self, wait_ms: int) -> bool:
        """Wait for records, and buffer them; False at once when there is nothing to fetch."""
        if len(self._missing) + len(self._waiting) >= len(self.assigned):
            return False
        for fetched in self._reader.poll(wait_ms):
            reading = None
            if fetched.typed_want is not None:
                if fetched.tp.topic in self._outdated:
                    continue
                reading = self._readings.known(fetched.tp.topic)
                assert reading is not None, "its columns were asked for"
                if reading.outdated_by(fetched) is not None:
                    self._read_anew(fetched)
                    continue
            self._buffer.add(fetched, reading)
        return True

    def _read_anew(self, fetched: FetchedBatches) -> None:
        """Fetches all of a topic again that was not handed out, by a later schema."""
        topic = fetched.tp.topic
        self._outdated[topic] = fetched
        for tp, offset in self.known().items():
            if tp.topic == topic:
                self.seek(tp, offset)

    def next_piece(self) -> Piece | None:
        return self._buffer.next_piece(self.paused)

    def take_rows(self, limit: int) -> list[ConsumerRecord]:
        return self._buffer.take_rows(limit, self.paused)

    def take_batches(self) -> list[TakenBatch]:
        return self._buffer.take_batches(self.paused)

    def shape(self, topics: Iterable[str]) -> "pa.Schema":
        """The columns of a table of these topics, as far as they are known: those of records where
        none has a schema."""
        from storage_engine.client.fetching.record_tables import SCHEMA

        for topic in topics:
            if (reading := self._reading_now(topic)) is not None:
                return reading.arrow_schema
        return SCHEMA

    def _reading_now(self, topic: str) -> TypedReading | None:
        try:
            return self._readings.of(topic)
        except (KafkaError, DeadlineExceededError):
            return None

    def close(self) -> None:
        self._reader.close()
        self._fetches.close()
        self._cluster.close()
