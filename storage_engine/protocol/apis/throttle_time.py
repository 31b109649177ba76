"""The throttle time of an answer: how long its client is to wait before it asks again (KIP-219)."""

from dataclasses import replace
from typing import TypeVar

Message = TypeVar("Message")

_FIELD = "throttle_time_ms"


def with_throttle_time(message: Message, wait_ms: int) -> Message:
    """The answer with its throttle time; unchanged where it has no such field."""
    if not hasattr(message, _FIELD):
        return message
    if isinstance(message, tuple):
        return message._replace(throttle_time_ms=wait_ms)  # type: ignore[attr-defined,no-any-return]
    return replace(message, throttle_time_ms=wait_ms)  # type: ignore[type-var]
