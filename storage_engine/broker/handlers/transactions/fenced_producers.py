"""How producers hear that a newer one has taken over: with a code that their version knows."""

from storage_engine.core.errors import ErrorCode


def code_for(code: ErrorCode, version: int, first_version_with_producer_fenced: int) -> int:
    """The number for the wire."""
    if code is ErrorCode.PRODUCER_FENCED and version < first_version_with_producer_fenced:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(code)
