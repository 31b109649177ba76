"""Errors as answers of the console, with their HTTP status.

Source: R-CON1.
"""

from collections.abc import Sequence

from storage_engine.client.schema_registry_http import SchemaRegistryError
from storage_engine.core.errors import (
    AuthenticationError,
    ConfigError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    UnsupportedVersionError,
)
from storage_engine.core.printable import printable
from storage_engine.tools.document import Document

MAX_MESSAGE = 1_000
"""The most characters of an error's message, which may quote a request."""

_STATUS = {
    "bad_request": 400,
    "log_in": 401,
    "csrf": 403,
    "foreign_host": 403,
    "foreign_origin": 403,
    "read_only": 403,
    "not_allowed": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "too_many": 429,
    "internal": 500,
    "not_here": 501,
    "cluster": 502,
    "no_answer": 504,
}

_CONFLICTS = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    }
)
_NOT_FOUND = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    }
)
_NOT_ALLOWED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_WRONG_INPUT = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.POLICY_VIOLATION,
    }
)


class ConsoleError(HeadraceError):
    """An answer that is an error. `code` is one of the API's; the message says what to do."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retry_after_s: int | None = None,
        unanswered: Sequence[Document] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s
        self.unanswered = tuple(unanswered)

    @property
    def status(self) -> int:
        return _STATUS[self.code]

    @property
    def document(self) -> Document:
        """The body of the error response."""
        text = printable(str(self))
        if len(text) > MAX_MESSAGE:
            text = text[:MAX_MESSAGE] + "…"
        return {"error": {"code": self.code, "message": text, "unanswered": list(self.unanswered)}}


def as_console_error(error: HeadraceError) -> ConsoleError:
    """Return the answer for an error of the client library."""
    if isinstance(error, ConsoleError):
        return error
    return ConsoleError(_code_of(error), str(error))


_OF_REGISTRY = {
    400: "bad_request",
    # The log-in that it refuses is not that of the console.
    401: "not_allowed",
    403: "not_allowed",
    404: "not_found",
    409: "bad_request",
    422: "bad_request",
}


def _code_of(error: HeadraceError) -> str:
    if isinstance(error, SchemaRegistryError):
        return _OF_REGISTRY.get(error.status, "cluster")
    if isinstance(error, AuthenticationError):
        return "log_in"
    if isinstance(error, ConfigError):
        return "bad_request"
    if isinstance(error, UnsupportedVersionError):
        return "not_here"
    if isinstance(error, DeadlineExceededError):
        return "no_answer"
    code = error.code if isinstance(error, KafkaError) else None
    for known, name in (
        (_CONFLICTS, "conflict"),
        (_NOT_FOUND, "not_found"),
        (_NOT_ALLOWED, "not_allowed"),
        (_WRONG_INPUT, "bad_request"),
    ):
        if code in known:
            return name
    return "cluster"
