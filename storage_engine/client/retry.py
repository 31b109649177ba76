"""Pauses between attempts, up to a deadline.

Only retriable errors are tried again; when the time is over, the last one is raised. Source:
R-CLI1.
"""

from storage_engine.core.errors import DeadlineExceededError, HeadraceError, KafkaError
from storage_engine.net.deadline import Deadline, sleep_ms

FIRST_PAUSE_MS = 20
"""A leader that has just moved is usually there at the next try."""

MAX_PAUSE_MS = 500
"""A cluster in trouble is asked twice a second."""


def pause_ms(attempt: int) -> int:
    """The pause after failed attempt number `attempt`, from 0."""
    return min(MAX_PAUSE_MS, FIRST_PAUSE_MS << min(attempt, 10))


class Retry:
    """Counts the attempts of one operation."""

    __slots__ = ("_attempts", "_deadline", "_what")

    def __init__(self, what: str, deadline: Deadline) -> None:
        self._what = what
        self._deadline = deadline
        self._attempts = 0

    def pause(self, error: HeadraceError) -> None:
        """Wait before the next attempt. Raises `error` itself when it is final, and
        DeadlineExceededError with its text when no time is left."""
        if isinstance(error, KafkaError) and not error.retriable:
            raise error
        pause = pause_ms(self._attempts)
        self._attempts += 1
        if self._deadline.left_ms <= pause:
            raise DeadlineExceededError(
                f"{self._what}: {error} (tried for {self._deadline.timeout_ms} ms)"
            ) from None
        sleep_ms(pause)
