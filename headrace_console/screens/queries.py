"""Spark's queries: their posted progress, beside the state of their sinks."""

from collections.abc import Sequence
from dataclasses import asdict

from headrace_console.cluster.snapshot import Snapshot
from headrace_console.console_settings import Thresholds
from headrace_console.paging import Page
from headrace_console.queries.query_store import SparkQuery
from headrace_console.records.shown_values import shown_text
from headrace_console.screens.problems import query_problem
from headrace_console.screens.waiting import waiting_of
from storage_engine.tools.document import Document


def query_row(query: SparkQuery, thresholds: Thresholds, now_ms: int) -> Document:
    """Return a query's row of the list."""
    last = query.last
    problem = query_problem(query, thresholds, now_ms)
    durations = {} if last is None else last.durations_ms
    return {
        "id": query.id,
        "run_id": query.run_id,
        "name": query.name,
        "state": query.state(now_ms),
        "first_ms": query.first_ms,
        "last_ms": query.last_ms,
        "batch_id": None if last is None else last.batch_id,
        "input_rows_per_s": None if last is None else last.input_rows_per_s,
        "processed_rows_per_s": None if last is None else last.processed_rows_per_s,
        "batch_duration_ms": durations.get("triggerExecution"),
        "trigger_ms": query.trigger_ms,
        "lag": query.lag,
        "behind_ms": query.behind_ms(),
        "sink_id": query.sink_id,
        "topics": list(query.topics),
        "problem": None if problem is None else problem.what,
    }


def query_list(
    queries: Sequence[SparkQuery], page: Page, thresholds: Thresholds, now_ms: int
) -> Document:
    """Return a page of queries, by default the last post first."""
    paged = page.of(
        queries,
        name=lambda query: f"{query.name or ''} {query.id}",
        keys={
            "name": lambda query: query.name or query.id,
            "last_ms": lambda query: query.last_ms,
            "lag": lambda query: query.lag,
            "state": lambda query: query.state(now_ms),
        },
        default="-last_ms",
    )
    return paged.document(lambda query: query_row(query, thresholds, now_ms), as_of_ms=now_ms)


def query_document(
    query: SparkQuery, snapshot: Snapshot | None, thresholds: Thresholds, now_ms: int
) -> Document:
    """Return a query with its history; the caller adds the state of its sink."""
    waiting = [] if snapshot is None else waiting_of(snapshot, query.topics, now_ms)
    return {
        **query_row(query, thresholds, now_ms),
        "as_of_ms": now_ms,
        "unanswered": [],
        "runs": [
            {"run_id": run, "first_ms": first_ms, "last_ms": last_ms}
            for run, (first_ms, last_ms) in query.runs.items()
        ],
        "exception": shown_text(query.exception),
        "host": query.app.get("host"),
        "spark_version": query.app.get("spark_version"),
        "app_id": query.app.get("id"),
        "sources": [dict(each) for each in query.sources],
        "sink": {"description": query.sink_description},
        "history": [asdict(each) for each in query.history],
        "state_operators": [dict(each) for each in query.operators],
        "commits": [dict(each) for each in query.commits],
        "sink_state": None,
        "waiting": waiting,
        "dead_letter_topic": query.dead_letter_topic,
    }
