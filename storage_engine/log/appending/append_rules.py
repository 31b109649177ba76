"""The rules for appends that follow from a log's settings, computed once and not for each append.

Source: R-LOG2, R-LOG7, R-LOG12.
"""

from storage_engine.log.appending.append_preparation import Requirement, requirement_of
from storage_engine.log.appending.time_limits import TimeLimits
from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.log_folder import LogFolder
from storage_engine.log.segments.rolling import RollRule


class AppendRules:
    """Replaced as a whole when the settings change."""

    __slots__ = (
        "compacts",
        "max_message_bytes",
        "requirement",
        "roll_rule",
        "stamps_append_time",
        "time_limits",
    )

    def __init__(self, folder: LogFolder) -> None:
        config: LogConfig = folder.config
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
        self.roll_rule = RollRule(config, str(folder.path))
