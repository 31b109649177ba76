"""The errors of a consumer that need different reactions. Each is a HeadraceError of one line.

error                     raised by          what to do
ConfigError               Consumer(...)      correct the setting
NoOffsetError             poll, position     with auto.offset.reset=none: seek
OffsetOutOfRangeError     poll               with auto.offset.reset=none: seek
LogTruncatedError         poll               with auto.offset.reset=none: records that were read are
                                             gone, others may be there; seek to truncation_offset,
                                             or to where you want to go on
CommitRefusedError        commit             the partitions are another member's: poll goes on with
                                             what this one owns now; what was read since the last
                                             commit is read again by the other
GroupError                poll, subscribe    the group refuses this member for good: correct what it
                                             names
AuthenticationError       any                the log-in or a certificate was refused: correct the
                                             setting that it names; it is not tried again
DeadlineExceededError     any                brokers or the coordinator were away for
                                             default.api.timeout.ms: again
"""

from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError


class NoOffsetError(HeadraceError):
    """The group has no committed offset for a partition, and auto.offset.reset is none."""


class GroupError(KafkaError):
    """The group does not take this member."""


def group_refused(group: str | None, code: ErrorCode, message: str | None = None) -> GroupError:
    """Return the error of a group that takes a member no more. `message`: the coordinator's own
    words."""
    words = " ".join(message.split()) if message else code.meaning
    return GroupError(f"group '{group}': {words}", code)
