"""The limits for the distance between records' timestamps and the broker's clock. Only the header
of a batch is checked, so that the cost does not depend on its records.

The header has the largest timestamp, which decides exactly whether a batch is too far ahead. It has
no smallest timestamp; that of the first record (the base timestamp) stands for it, so that a batch
in which only a later record is too old is accepted. A record without a timestamp (-1) is always
accepted. Source: KIP-937.
"""

from dataclasses import dataclass

from storage_engine.core.errors import InvalidTimestampError
from storage_engine.log.log_config import NO_TIME_LIMIT
from storage_engine.protocol.records.record_batch import BatchHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """The limits of one topic; NO_TIME_LIMIT where there is none."""

    before_max_ms: int
    after_max_ms: int

    @property
    def are_set(self) -> bool:
        """Return True when any batch may have to be refused."""
        return self.has_oldest or self.after_max_ms < NO_TIME_LIMIT

    @property
    def has_oldest(self) -> bool:
        """Return True when records may be too old."""
        return self.before_max_ms < NO_TIME_LIMIT

    def allow_newest(self, newest_ms: int, now_ms: int) -> bool:
        """Return True when records up to this time are not too far ahead."""
        return newest_ms - now_ms <= self.after_max_ms

    def check(self, header: BatchHeader, now_ms: int) -> None:
        """Raise InvalidTimestampError for a batch outside the limits."""
        newest_ms = header.max_timestamp
        if not self.allow_newest(newest_ms, now_ms):
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
