"""Pauses between attempts, up to a deadline.

    20 ms, 50 ms for QUICK_TRIES, then twice as long each time up to MAX_PAUSE_MS, less up to a half

A leader that has died is replaced within a fraction of a second where its death is noticed at once,
and in some seconds where its session has to end. So the first tries are quick; a long outage finds
each client asking twice a second, and not all at the same time. Only retriable errors are tried
again; when the time is over, the last one is raised. Source: R-CLI1, R-REP12.
"""

import random

from storage_engine.core.errors import DeadlineExceededError, HeadraceError, KafkaError
from storage_engine.net.deadline import Deadline, sleep_ms

FIRST_PAUSE_MS = 20
"""A leader that has just moved is usually there at the next try."""

QUICK_PAUSE_MS = 50
QUICK_TRIES = 16
"""With the quick pauses, most of a second."""

MAX_PAUSE_MS = 500
"""A cluster in trouble is asked twice a second."""


def pause_ms(attempt: int) -> int:
    """The pause after failed attempt number `attempt`, from 0."""
    if attempt == 0:
        return FIRST_PAUSE_MS
    if attempt <= QUICK_TRIES:
        return QUICK_PAUSE_MS
    longest = min(MAX_PAUSE_MS, QUICK_PAUSE_MS << min(attempt - QUICK_TRIES, 10))
    return random.randint(longest // 2, longest)


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
