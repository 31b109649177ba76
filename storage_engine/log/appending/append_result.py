"""The result of an append."""

from typing import NamedTuple

from storage_engine.core.errors import KafkaError


class AppendResult(NamedTuple):
    """The offsets of the appended batches; for a duplicate, those of its first append."""

    base_offset: int
    last_offset: int
    next_offset: int
    """The log's end after this append."""

    log_append_time_ms: int
    """-1 unless `message.timestamp.type` is LogAppendTime."""

    duplicate: bool
    size: int
    """The number of bytes written."""


AppendOutcome = AppendResult | KafkaError
"""The result or the error of one append."""
