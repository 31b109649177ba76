"""The error of a commit that a group refuses."""

from storage_engine.core.errors import ErrorCode, KafkaError


class CommitRefusedError(KafkaError):
    """The member is not in the group's present generation."""

    code = ErrorCode.ILLEGAL_GENERATION
