"""Sessions end, and failed log-ins are limited."""

import pytest

from headrace_console.http.sessions import (
    IDLE_S,
    LONGEST_S,
    MOST_SESSIONS,
    MOST_SESSIONS_EACH,
    ConsoleUser,
    LogInLimit,
    Sessions,
)
from headrace_console.problem import ConsoleError


def test_sessions_end_when_they_are_idle_or_old_or_too_many() -> None:
    now_s = 0.0
    sessions = Sessions(now_s=lambda: now_s)
    idle, used = sessions.begin(None), sessions.begin(None)
    now_s = IDLE_S
    assert sessions.get(used.id) is used
    now_s = IDLE_S + 1
    assert sessions.get(idle.id) is None
    while now_s <= LONGEST_S:
        assert sessions.get(used.id) is used
        now_s += IDLE_S
    assert sessions.get(used.id) is None
    first = sessions.begin(None)
    for _ in range(MOST_SESSIONS):
        sessions.begin(None)
    assert sessions.get(first.id) is None
    assert sessions.get(None) is None and sessions.get("x" * 1_000) is None


def test_one_user_has_few_sessions_at_a_time() -> None:
    sessions = Sessions()

    class Closed(ConsoleUser):
        def close(self) -> None: ...

    begun = [sessions.begin(Closed(None, None, "alice")) for _ in range(MOST_SESSIONS_EACH + 1)]
    other = sessions.begin(Closed(None, None, "bob"))
    assert not sessions.is_alive(begun[0])
    assert all(sessions.is_alive(each) for each in (*begun[1:], other))


def test_failed_log_ins_are_limited_by_user_and_by_address() -> None:
    now_s = 0.0
    limit = LogInLimit(now_s=lambda: now_s)
    for _ in range(5):
        limit.check("a", "alice")
        limit.failed("a", "alice")
    with pytest.raises(ConsoleError, match="try again in 61 s"):
        limit.check("a", "alice")
    limit.check("a", "bob")
    limit.check("b", "alice")
    for number in range(15):
        limit.failed("a", f"user-{number}")
    with pytest.raises(ConsoleError):
        limit.check("a", "somebody")
    now_s = 61.0
    limit.check("a", "alice")
