"""The rules for appends that follow from a log's settings, computed once and not for each append:
which timestamps are taken, when a segment is rolled, what batches must be.

Source: R-LOG2, R-LOG7, R-LOG12, KIP-937.
"""

from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

from storage_engine.core.errors import InvalidTimestampError
from storage_engine.log.appending.append_preparation import Requirement, requirement_of
from storage_engine.log.log_config import MAX_SEGMENT_BYTES, NO_TIME_LIMIT, LogConfig
from storage_engine.log.segments.log_folder import LogFolder
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.offset_index import MAX_RELATIVE_OFFSET
from storage_engine.protocol.records.record_batch import BatchHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """The limits for the distance between records' timestamps and the broker's clock, in one topic;
    NO_TIME_LIMIT where there is none. Only the header of a batch is checked, so that the cost does
    not depend on its records.

    The header has the largest timestamp, which decides exactly whether a batch is too far ahead. It
    has no smallest timestamp; that of the first record (the base timestamp) stands for it, so that
    a batch in which only a later record is too old is accepted. A record without a timestamp (-1)
    is always accepted.
    """

    before_max_ms: int
    after_max_ms: int

    @property
    def are_set(self) -> bool:
        """Return True when any batch may have to be refused."""
        return min(self.before_max_ms, self.after_max_ms) < NO_TIME_LIMIT

    def check(self, header: BatchHeader, now_ms: int) -> None:
        """Raise InvalidTimestampError for a batch outside the limits."""
        newest_ms = header.max_timestamp
        if newest_ms - now_ms > self.after_max_ms:
            raise InvalidTimestampError(
                f"a record's timestamp {newest_ms} is {newest_ms - now_ms} ms ahead of the broker's"
                f" clock, message.timestamp.after.max.ms={self.after_max_ms}: send milliseconds"
                " since 1970"
            )
        oldest_ms = min(
            (ms for ms in (header.base_timestamp, newest_ms) if ms >= 0), default=now_ms
        )
        if now_ms - oldest_ms > self.before_max_ms:
            raise InvalidTimestampError(
                f"a record's timestamp {oldest_ms} is {now_ms - oldest_ms} ms behind the broker's"
                f" clock, message.timestamp.before.max.ms={self.before_max_ms}"
            )


class RollRule:
    """The rule for beginning a new segment. It is applied before an append, to the active segment
    as it would be afterwards."""

    __slots__ = ("_age_max_ms", "segment_bytes")

    def __init__(self, config: LogConfig, name: str) -> None:
        """`name` spreads the jitter: logs that were created at the same time shall not all roll at
        the same time.
        """
        self.segment_bytes = min(config.segment_bytes, MAX_SEGMENT_BYTES)
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        spread_ms = crc32(name.encode()) * jitter_ms >> 32
        self._age_max_ms = config.segment_ms - spread_ms

    def demands_roll(
        self, segment: LogSegment, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Return True when `size` more bytes up to `last_offset` must go to a new segment."""
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if segment.size == 0:
            return False
        return (
            segment.size + size > self.segment_bytes
            or segment.indexes_full
            or self.is_too_old(segment, max_timestamp, now_ms)
        )

    def is_too_old(self, segment: LogSegment, max_timestamp: int, now_ms: int) -> bool:
        """Return True when the segment is too old. Its age counts from its first batch's timestamp,
        or in the broker's time when that can't be right.
        """
        first = segment.first_timestamp
        if first is None:
            first = segment.time_of_first_batch()
        # A timestamp ahead of the broker's clock (often in microseconds) is of no use either.
        if 0 <= first <= now_ms and max_timestamp >= 0:
            return max_timestamp - first > self._age_max_ms
        return now_ms - segment.created_ms > self._age_max_ms


class AppendRules:
    """Never changed, since logs with the same settings share it: replaced as a whole."""

    __slots__ = (
        "compacts",
        "max_message_bytes",
        "requirement",
        "roll_rule",
        "stamps_append_time",
        "time_limits",
    )

    def __init__(self, config: LogConfig, name: str) -> None:
        """`name`: see `RollRule`."""
        self.max_message_bytes = config.max_message_bytes
        self.stamps_append_time = config.stamps_append_time
        self.time_limits = TimeLimits(
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
        )
        self.compacts = config.compacts
        """True when every record must have a key."""
        self.requirement: Requirement | None = requirement_of(config)
        """The requirement for producers' batches; None: any valid batch is appended as it is."""
        self.roll_rule = RollRule(config, name)


def append_rules_of(folder: LogFolder) -> AppendRules:
    """Return the rules of that log: they are its own where its name or its schema matters."""
    config = folder.config
    if config.segment_jitter_ms or config.schema is not None:
        return AppendRules(config, str(folder.path))
    return _shared_rules(config)


@lru_cache(64)  # Of the topics that are opened one after the other.
def _shared_rules(config: LogConfig) -> AppendRules:
    return AppendRules(config, "")
