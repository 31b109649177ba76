"""What queries have posted: cut, and kept in bounded memory."""

import uuid

from headrace_console.queries.progress_post import MOST_KEPT_TEXT
from headrace_console.queries.query_store import (
    LEAST_SILENT_MS,
    MOST_PROGRESSES,
    MOST_QUERIES,
    POSTS_PER_S,
    QueryStore,
)
from headrace_console.tests.queries.posted import QUERY, event, parsed


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
