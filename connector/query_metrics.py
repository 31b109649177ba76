"""Reports the progress of streaming queries to a console: their rates, durations by phase, lag,
state, and the sink's commits.

    from connector import QueryMetrics

    spark.streams.addListener(QueryMetrics("http://127.0.0.1:8080"))

`headrace console` keeps what it hears and draws it. A query never waits for it, and never fails for
it: what can't be posted in time is dropped, counted and told in the log (`progress_posts`).
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.streaming.listener import StreamingQueryListener

from connector.commit_notes import CommitNotes, SinkCommit
from connector.progress_posts import Event, ProgressPosts
from storage_engine.core.typed.bounded_json import JsonObject, JsonValue

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

Kept = TypeVar("Kept")

TOKEN_VARIABLE = "HEADRACE_CONSOLE_TOKEN"
COMMITS_MAX = 20
"""The most commits of a query that are kept for its next event."""
QUERIES_MAX = 200
"""The most queries whose commits and names are kept."""


class QueryMetrics(StreamingQueryListener):
    """A listener for `spark.streams.addListener`, on a driver or over Spark Connect."""

    def __init__(
        self,
        console: str,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        dead_letter_topic: str | None = None,
    ) -> None:
        """`console`: the address that `headrace console` prints. `token`: its progress token, where
        it has one (default: the variable HEADRACE_CONSOLE_TOKEN). `ca_file`: the authority of its
        certificate. `dead_letter_topic`: the topic of the queries' rejected records, if any.
        ConnectorError for an invalid address."""
        super().__init__()
        token = token or os.environ.get(TOKEN_VARIABLE) or None
        self._posts = ProgressPosts(console, token=token, ca_file=ca_file)
        self._dead_letter_topic = dead_letter_topic
        self._app = _app()
        self._names: dict[str, str | None] = {}
        self._sinks: dict[str, str] = {}
        self._commits: dict[str, list[SinkCommit]] = {}
        self._notes: CommitNotes | None = None
        with contextlib.suppress(OSError):
            self._notes = CommitNotes()

    @property
    def posted(self) -> int:
        """Events that the console has taken."""
        return self._posts.posted

    @property
    def dropped(self) -> int:
        """Events that were given up."""
        return self._posts.dropped

    def close(self) -> None:
        """Posts what waits, for two seconds at most. Spark does not call it."""
        self._posts.close()
        if self._notes is not None:
            self._notes.close()
            self._notes = None

    # Called by Spark, one at a time.

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """Called by Spark."""
        self._keep(self._names, str(event.runId), event.name)
        self._add("started", str(event.id), str(event.runId), name=event.name)

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """Called by Spark."""
        found = event.progress
        self._keep(self._names, str(found.runId), found.name)
        self._add("progress", str(found.id), str(found.runId), name=found.name, text=found.json)

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        """Called by Spark."""
        run = str(event.runId)
        self._add("idle", str(event.id), run, name=self._names.get(run))

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """Called by Spark."""
        run = str(event.runId)
        name, failure = self._names.pop(run, None), event.exception
        self._add("terminated", str(event.id), run, name=name, exception=failure)

    def _add(
        self,
        kind: str,
        query: str,
        run: str,
        *,
        name: str | None,
        text: str | None = None,
        exception: str | None = None,
    ) -> None:
        event = {
            "kind": kind,
            "at_ms": int(time.time() * 1000),
            "query": {"id": query, "run_id": run, "name": name},
            "exception": exception,
        }
        self._posts.add(partial(self._made, event, text))

    # On the thread that posts.

    def _made(self, event: Event, text: str | None) -> Event:
        progress = None if text is None else json.loads(text)
        query = event["query"]["id"]
        commits = self._commits_of(query)
        for commit in commits:
            self._keep(self._sinks, query, commit.sink)
        topics, lag = what_is_read((progress or {}).get("sources") or ())
        return {
            **event,
            "progress": progress,
            "lag": lag,
            "trigger_ms": None,
            "topics": topics,
            "sink": self._sink_of(query, progress),
            "commits": [_as_told(commit) for commit in commits],
            "app": self._app,
        }

    def _commits_of(self, query: str) -> list[SinkCommit]:
        """The query's commits since its last event; those of other queries are kept."""
        for commit in [] if self._notes is None else self._notes.take():
            kept = self._commits.get(commit.query, [])
            self._keep(self._commits, commit.query, [*kept, commit][-COMMITS_MAX:])
        return self._commits.pop(query, [])

    def _sink_of(self, query: str, progress: "JsonObject | None") -> Event | None:
        """The sink, for the event; None where the query is not known to write to this format."""
        if query not in self._sinks:
            sink = (progress or {}).get("sink")
            described = sink.get("description") if isinstance(sink, dict) else None
            if "headrace" not in str(described).lower():
                return None
        return {
            "sink_id": self._sinks.get(query, query),
            "topics": [],
            "dead_letter_topic": self._dead_letter_topic,
        }

    def _keep(self, kept: dict[str, Kept], key: str, value: Kept) -> None:
        """Set `kept[key]`; drop the oldest entry beyond QUERIES_MAX."""
        kept.pop(key, None)
        kept[key] = value
        while len(kept) > QUERIES_MAX:
            kept.pop(next(iter(kept)), None)


def what_is_read(sources: Iterable[Mapping[str, JsonValue]]) -> tuple[list[str], int | None]:
    """The topics in a progress's sources of this format, and how many records they are behind;
    None where no source reports it."""
    topics: dict[str, None] = {}
    lag: int | None = None
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        topics |= dict.fromkeys([*end, *latest])
        if latest:
            lag = (lag or 0) + sum(
                max(0, offset - end.get(topic, {}).get(partition, offset))
                for topic, partitions in latest.items()
                for partition, offset in partitions.items()
            )
    return list(topics), lag


def _offsets(text: object) -> dict[str, dict[str, int]]:
    """Offsets by topic and partition; empty where a source has others. Names that begin with @ are
    no topics."""
    with contextlib.suppress(ValueError, TypeError):
        found = json.loads(text) if isinstance(text, str) else text
        if isinstance(found, dict):
            return {
                topic: {str(each): int(offset) for each, offset in partitions.items()}
                for topic, partitions in found.items()
                if not topic.startswith("@") and isinstance(partitions, dict)
            }
    return {}


def _as_told(commit: SinkCommit) -> Event:
    return {
        "batch_id": commit.batch_id,
        "at_ms": commit.at_ms,
        "tasks": commit.tasks,
        "rows": commit.rows,
        "duration_ms": commit.duration_ms,
        "outcome": commit.outcome,
    }


def _app() -> dict[str, str | None]:
    import pyspark

    app_id = None
    with contextlib.suppress(Exception):
        from pyspark import SparkContext

        context = SparkContext._active_spark_context
        app_id = None if context is None else context.applicationId
    return {"id": app_id, "host": socket.gethostname(), "spark_version": pyspark.__version__}
