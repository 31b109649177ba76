"""The result of an append."""

from typing import NamedTuple

from storage_engine.core.errors import KafkaError


class AppendResult(NamedTuple):
    """Offsets of what is in the log now; of the first time when it was a duplicate."""

    base_offset: int
    last_offset: int
    next_offset: int
    """The log's end after this append."""

    log_append_time_ms: int
    """-1 unless `message.timestamp.type` is LogAppendTime."""

    duplicate: bool
    size: int
    """Bytes written."""


AppendOutcome = AppendResult | KafkaError
"""What became of an append that others do not depend on."""
