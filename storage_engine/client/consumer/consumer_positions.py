"""The partitions of a consumer: where each begins, what was fetched, and what was returned to the
user.

A partition is fetched from its position on: the one that was sought, else the committed one, else
the end that `auto.offset.reset` names. A position that can't be determined is looked up again at
the next call; after `default.api.timeout.ms` the error is raised. Source: R-CLI2.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.consumer.consumer_config import EARLIEST as EARLIEST_RESET
from storage_engine.client.consumer.consumer_config import NONE as NO_RESET
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_errors import NoOffsetError
from storage_engine.client.consumer.consumer_record import ConsumerRecord
from storage_engine.client.consumer.record_buffer import Piece, RecordBuffer
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.groups.committed_offsets import committed_offsets
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
    from storage_engine.protocol.records.records import DecodedRecords

_FIND_MS = 1_000
"""The time for one attempt to find positions; records of other partitions wait meanwhile."""

_RETRY_MS = 100

log = logging.getLogger(__name__)

Committed = Callable[[Cluster], Mapping[TopicPartition, int]]
"""The committed offsets that exist; requested when partitions are assigned."""


class Positions:
    """See above. For one thread."""

    def __init__(self, config: ConsumerConfig, committed: Committed | None = None) -> None:
        """`committed`: None for what the group's coordinator has stored."""
        self._config = config
        self._committed = committed or self._of_group
        self._cluster = Cluster(
            config.bootstrap_servers,
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            deadline_ms=_FIND_MS,
            security=config.security,
        )
        self._fetches = Cluster(
            config.bootstrap_servers,
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            deadline_ms=config.default_api_timeout_ms,
            unknown_topic_wait_ms=config.default_api_timeout_ms,
            security=config.security,
        )
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
        self._failing_since_ms: int | None = None
        self._find_at_ms = 0

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """These and no others; those that are there already go on."""
        wanted = dict.fromkeys(partitions)
        for tp in [tp for tp in self.assigned if tp not in wanted]:
            self._buffer.drop(tp)
            self._reader.forget(tp)
            self.paused.discard(tp)
        self._missing &= set(wanted)
        self._missing |= {tp for tp in wanted if tp not in self.assigned}
        self.assigned = wanted
        self._find_at_ms = 0

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Moves the position of an assigned partition."""
        self._missing.discard(tp)
        self._buffer.begin(tp, offset)
        self._reader.read_from(tp, offset)
        self._reader.pause(tp, paused=tp in self.paused)

    def pause(self, tp: TopicPartition, *, paused: bool) -> None:
        if paused:
            self.paused.add(tp)
        else:
            self.paused.discard(tp)
        if tp not in self._missing:
            self._reader.pause(tp, paused=paused)

    def known(self) -> dict[TopicPartition, int]:
        """The positions that are known, of assigned partitions."""
        return self._buffer.positions

    def find(self) -> None:
        """Find out where partitions begin, if that is missing and it is time to."""
        now_ms = monotonic_ms()
        if not self._missing or now_ms < self._find_at_ms:
            return
        try:
            for tp, offset in self._beginnings().items():
                self.seek(tp, offset)
        except (KafkaError, DeadlineExceededError) as error:
            self._not_found(error, now_ms)
        else:
            self._failing_since_ms = None

    def _not_found(self, error: HeadraceError, now_ms: int) -> None:
        """Raise it where trying again is no use. Brokers that are busy answer later."""
        away = isinstance(error, KafkaError) and error.code is ErrorCode.BROKER_NOT_AVAILABLE
        if isinstance(error, KafkaError) and not error.retriable and not away:
            raise error
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        elif now_ms - self._failing_since_ms > self._config.default_api_timeout_ms:
            self._failing_since_ms = None
            raise error
        self._find_at_ms = monotonic_ms() + _RETRY_MS

    def _beginnings(self) -> dict[TopicPartition, int]:
        stored = self._committed(self._cluster)
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

    def _of_group(self, cluster: Cluster) -> Mapping[TopicPartition, int]:
        group = self._config.group_id
        return {} if group is None else committed_offsets(cluster, group)

    def _out_of_range(self, tp: TopicPartition, offset: int, start: int, end: int) -> int:
        reset = self._config.auto_offset_reset
        if reset == NO_RESET:
            raise OffsetOutOfRangeError(
                f"{tp}: offset {offset} is out of range, the log has offsets {start} to {end} "
                "(exclusive), and auto.offset.reset is none: seek",
                log_start_offset=start,
                log_end_offset=end,
            )
        return start if reset == EARLIEST_RESET else end

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
        return truncation_offset

    # --- records ---

    def fetch(self, wait_ms: int) -> bool:
        """Wait for records, and buffer them; False at once when there is nothing to fetch."""
        if len(self._missing) == len(self.assigned):
            return False
        for fetched in self._reader.poll(wait_ms):
            self._buffer.add(fetched)
        return True

    def next_piece(self) -> Piece | None:
        return self._buffer.next_piece(self.paused)

    def take_rows(self, limit: int) -> list[ConsumerRecord]:
        return self._buffer.take_rows(limit, self.paused)

    def take_columns(self) -> Iterator[tuple[TopicPartition, "DecodedRecords", int]]:
        return self._buffer.take_columns(self.paused)

    def close(self) -> None:
        self._reader.close()
        self._fetches.close()
        self._cluster.close()
