"""What queries post: checked, cut, and kept in bounded memory."""

import json
import uuid
from typing import Any

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
from headrace_console.queries.progress_post import MOST_KEPT_TEXT, parse_post
from headrace_console.queries.query_store import (
    LEAST_SILENT_MS,
    MOST_PROGRESSES,
    MOST_QUERIES,
    POSTS_PER_S,
    QueryStore,
)

QUERY = str(uuid.UUID(int=1))


def event(**more: Any) -> dict[str, Any]:
    run = more.pop("run", 1)
    return {
        "kind": "progress",
        "at_ms": 5,
        "query": {"id": more.pop("id", QUERY), "run_id": str(uuid.UUID(int=run)), "name": "q"},
        "progress": {
            "batchId": 3,
            "numInputRows": 10,
            "inputRowsPerSecond": 5.0,
            "processedRowsPerSecond": "NaN",
            "durationMs": {"addBatch": 12, "triggerExecution": 20},
            "sources": [{"description": "x" * 5_000, "endOffset": {"t": {"0": 1}}}],
            "sink": {"description": "s"},
        },
        **more,
    }


def parsed(*events: Any, **more: Any) -> list:
    return parse_post(json.dumps({"format": 1, "events": list(events), **more}).encode())


def test_a_post_of_sparks_progress_is_kept_as_the_chart_needs_it() -> None:
    store = QueryStore(now_s=lambda: 100.0)
    commits = [{"batch_id": 3, "outcome": "committed", "tasks": 2, "rows": 10}]
    store.add(parsed(event(lag=7, commits=commits, sink={"sink_id": "s", "topics": ["out"]})))
    query = store.get(QUERY)
    assert query is not None
    assert (query.name, query.lag, query.sink_id, query.topics) == ("q", 7, "s", ("out",))
    assert query.last is not None and query.last.durations_ms["addBatch"] == 12
    assert query.last.processed_rows_per_s is None, "a rate that is no number is none"
    assert len(query.sources[0]["description"]) == MOST_KEPT_TEXT + 1
    assert query.commits[0]["tasks"] == 2


def test_a_rate_that_is_no_number_does_not_cost_the_post() -> None:
    post = event()
    post["progress"] |= {"inputRowsPerSecond": float("nan"), "processedRowsPerSecond": float("inf")}
    (kept,) = parsed(post)
    assert kept.progress.kept.input_rows_per_s is kept.progress.kept.processed_rows_per_s is None


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"kind": "x"}, r"events\[1\]\.kind"),
        ({"at_ms": -1}, r"events\[1\]\.at_ms"),
        ({"query": None}, r"events\[1\]\.query"),
        ({"query": {"id": "x", "run_id": QUERY}}, r"events\[1\]\.query\.id"),
        ({"lag": True}, r"events\[1\]\.lag"),
        ({"topics": [1]}, r"events\[1\]\.topics"),
        ({"topics": ["\ud800"]}, r"events\[1\]\.topics"),
        ({"commits": [{"outcome": "x"}]}, r"events\[1\]\.commits\[0\]\.outcome"),
        ({"progress": []}, r"events\[1\]\.progress"),
    ],
)
def test_the_first_wrong_field_is_named_and_nothing_is_kept(changed: dict, named: str) -> None:
    with pytest.raises(ConsoleError, match=named):
        parsed(event(), {**event(), **changed})


def test_memory_is_bounded_and_the_query_that_was_silent_longest_goes() -> None:
    store = QueryStore()
    for _ in range(MOST_PROGRESSES // 100 + 1):
        store.add(parsed(*[event()] * 100))
    query = store.get(QUERY)
    assert query is not None and len(query.history) == MOST_PROGRESSES
    for number in range(MOST_QUERIES):
        store.add(parsed(event(id=str(uuid.UUID(int=number + 10)))))
    assert store.get(QUERY) is None and len(store.all()) == MOST_QUERIES
    assert [store.has_room() for _ in range(POSTS_PER_S + 1)][-1] is False


def test_a_late_post_of_a_run_that_was_replaced_changes_nothing() -> None:
    store = QueryStore(now_s=lambda: 100.0)
    store.add(parsed(event(run=1), event(run=2)))
    store.add(parsed(event(run=1, kind="terminated", exception="killed")))
    query = store.get(QUERY)
    assert query is not None
    assert query.state(100_000) == "active" and query.run_id == str(uuid.UUID(int=2))
    assert query.state(100_000 + LEAST_SILENT_MS + 1) == "silent"


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
