"""The settings of one log, as plain values, with Kafka's names and defaults; and the policy of
deletion that `log.deletion.policy` names. A name that can't be loaded is an error when the broker
starts.

    kafka               by retention.ms and retention.bytes
    <module>:<Class>    a class of the broker's Python path that has the method of
                        core.retention.DeletionPolicy, made without arguments

Source: R-LOG9.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from storage_engine.core.errors import ConfigError
from storage_engine.core.retained.retention import DeletionPolicy, KafkaDeletionPolicy
from storage_engine.core.typed.foreign_format import ForeignFormat
from storage_engine.core.typed.topic_schema import TopicSchema

MAX_SEGMENT_BYTES = 0x7FFFFFFF
"""A position in an offset index is an int32."""

NO_TIME_LIMIT = (1 << 63) - 1

_WEEK_MS = 7 * 24 * 3600 * 1000
_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log; -1 means no limit where a limit may be absent."""

    segment_bytes: int = 1 << 30
    segment_ms: int = _WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1048588
    message_timestamp_type: str = "CreateTime"
    """`CreateTime` or `LogAppendTime`."""

    message_timestamp_before_max_ms: int = NO_TIME_LIMIT
    message_timestamp_after_max_ms: int = NO_TIME_LIMIT
    compression_type: str = "producer"
    """`producer`: batches are stored as they are sent; else the codec that they are stored with."""

    retention_ms: int = _WEEK_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    cleanup_policy: str = "delete"
    """`delete`, `compact` or both, separated by a comma."""

    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    min_cleanable_dirty_ratio: float = 0.5
    flush_messages: int = (1 << 63) - 1
    flush_ms: int = (1 << 63) - 1
    producer_id_expiration_ms: int = _DAY_MS
    schema: TopicSchema | None = None
    """The schema of a typed topic; None: records are bytes."""
    foreign_format: ForeignFormat = ForeignFormat.JSON
    """The records of clients that know no columns, in a typed topic."""

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self._policies

    @property
    def compacts(self) -> bool:
        """Return True when only the newest record of each key is kept, and every record must have a
        key. Rows of a typed topic without a key are kept, whatever the broker's policy is."""
        has_keys = self.schema is None or bool(self.schema.key)
        return has_keys and "compact" in self._policies

    @property
    def _policies(self) -> list[str]:
        return [policy.strip() for policy in self.cleanup_policy.split(",")]

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


KEY = "log.deletion.policy"
KAFKA = "kafka"

REGISTERED: Mapping[str, Callable[[], DeletionPolicy]] = MappingProxyType(
    {KAFKA: KafkaDeletionPolicy}
)


def load_policy(name: str) -> DeletionPolicy:
    """Load the policy; ConfigError when there is none of that name."""
    registered = REGISTERED.get(name)
    if registered is not None:
        return registered()
    module_name, colon, class_name = name.partition(":")
    if not (colon and module_name and class_name):
        raise _wrong(name, f"it must be {' or '.join(REGISTERED)}, or of the form module:Class")
    try:
        # This is a user's code, which may fail in any way.
        made: DeletionPolicy = getattr(importlib.import_module(module_name), class_name)()
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise _wrong(name, f"it can't be made ({type(error).__name__}: {reason})") from error
    if not callable(getattr(made, "count_deletable", None)):
        raise _wrong(name, "it has no method count_deletable(segments, limits)")
    return made


def _wrong(name: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{KEY}={name}: {reason}; correct the name, or the Python path, or remove it"
    )
