"""The throttle time of an answer: how long its client is to wait before it asks again (KIP-219)."""

from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

Message = TypeVar("Message")

_FIELD = "throttle_time_ms"


def with_throttle_time(message: Message, wait_ms: int) -> Message:
    """The answer with its throttle time; unchanged where it has no such field."""
    if not hasattr(message, _FIELD):
        return message
    answer: Any = message
    if isinstance(answer, tuple):
        return answer._replace(throttle_time_ms=wait_ms)  # type: ignore[attr-defined,no-any-return]
    if is_dataclass(answer):
        return replace(answer, throttle_time_ms=wait_ms)  # type: ignore[return-value,type-var]
    answer.throttle_time_ms = wait_ms
    return message
