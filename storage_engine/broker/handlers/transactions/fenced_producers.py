"""The error of a producer that a newer one has replaced, as its version of a request knows it."""

from storage_engine.core.errors import ErrorCode


def code_for(code: ErrorCode, version: int, first_version_with_producer_fenced: int) -> int:
    """The number for the wire."""
    if code is ErrorCode.PRODUCER_FENCED and version < first_version_with_producer_fenced:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(code)
