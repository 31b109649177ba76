"""Parses a post of `connector.QueryMetrics`: checks each field, and drops what is not kept.

A post with a wrong field is rejected as a whole. Unknown fields are dropped: a newer connector may
send more. Source: R-CON5.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headrace_console.given import Body, bad, json_object
from storage_engine.tools.document import Document, Json

MOST_BYTES = 256 << 10
MOST_EVENTS = 100
MOST_SOURCES = 20
MOST_OPERATORS = 20
MOST_PHASES = 20
MOST_TOPICS = 500
MOST_COMMITS = 100
MOST_KEPT_TEXT = 2_048
"""The most characters that are kept of a text."""
_KINDS = ("started", "progress", "idle", "terminated")
_OUTCOMES = ("committed", "already committed")
_MOST_TEXT = 256 << 10
"""The most characters of a text in a post; MOST_KEPT_TEXT of them are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptProgress:
    """The numbers of one micro-batch for the chart."""

    at_ms: int
    batch_id: int | None
    input_rows: int | None
    input_rows_per_s: float | None
    processed_rows_per_s: float | None
    durations_ms: Mapping[str, int]
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkProgress:
    """The fields that are kept of Spark's StreamingQueryProgress."""

    kept: KeptProgress
    sources: tuple[Mapping[str, Json], ...]
    operators: tuple[Mapping[str, Json], ...]
    sink_description: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressEvent:
    """One event of a query."""

    kind: str
    at_ms: int
    query_id: str
    run_id: str
    name: str | None = None
    exception: str | None = None
    lag: int | None = None
    trigger_ms: int | None = None
    sink_id: str | None = None
    sink_topics: tuple[str, ...] = ()
    dead_letter_topic: str | None = None
    topics: tuple[str, ...] = ()
    commits: tuple[Mapping[str, Json], ...] = ()
    app: Mapping[str, str | None] = field(default_factory=dict)
    progress: SparkProgress | None = None


def parse_post(data: bytes) -> list[ProgressEvent]:
    """Return the events of a post; ConsoleError bad_request names the first wrong field."""
    body = Body(json_object(data, nan_is_null=True))
    if body.raw("format") != 1:
        raise bad("'format' must be 1; this console knows no other")
    events = body.parts("events", most=MOST_EVENTS)
    if not events:
        raise bad("'events' must be a list that is not empty")
    return [_event(each) for each in events]


def _event(body: Body) -> ProgressEvent:
    kind = body.text("kind")
    if kind not in _KINDS:
        raise body.wrong("kind", f"one of {', '.join(_KINDS)}")
    query = body.part("query")
    if query is None:
        raise body.wrong("query", "an object")
    sink, app, progress = body.part("sink"), body.part("app"), body.part("progress")
    at_ms = body.integer_or_none("at_ms")
    if at_ms is None:
        raise body.wrong("at_ms", "milliseconds since 1970")
    lag = body.integer_or_none("lag")
    return ProgressEvent(
        kind=kind,
        at_ms=at_ms,
        query_id=_uuid(query, "id"),
        run_id=_uuid(query, "run_id"),
        name=_text(query, "name"),
        exception=_text(body, "exception"),
        lag=lag,
        trigger_ms=body.integer_or_none("trigger_ms", most=2**53),
        sink_id=None if sink is None else _text(sink, "sink_id"),
        sink_topics=() if sink is None else tuple(sink.texts("topics", most=MOST_TOPICS)),
        dead_letter_topic=None if sink is None else sink.text_or_none("dead_letter_topic"),
        topics=tuple(body.texts("topics", most=MOST_TOPICS)),
        commits=tuple(_commit(each) for each in body.parts("commits", most=MOST_COMMITS)),
        app={}
        if app is None
        else {name: _text(app, name) for name in ("id", "host", "spark_version")},
        progress=None if progress is None else _progress(progress, at_ms, lag),
    )


def _uuid(body: Body, name: str) -> str:
    text = body.text(name)
    try:
        return str(UUID(text))
    except ValueError:
        raise body.wrong(name, "a UUID") from None


def _text(body: Body, name: str) -> str | None:
    return _cut(body.text_or_none(name, most=_MOST_TEXT))


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= MOST_KEPT_TEXT:
        return text
    return text[:MOST_KEPT_TEXT] + "…"


def _commit(body: Body) -> Document:
    outcome = body.text_or_none("outcome")
    if outcome not in _OUTCOMES:
        raise body.wrong("outcome", f"one of {', '.join(_OUTCOMES)}")
    names = ("batch_id", "at_ms", "tasks", "rows", "duration_ms")
    return {**{name: body.integer_or_none(name) for name in names}, "outcome": outcome}


def _progress(body: Body, at_ms: int, lag: int | None) -> SparkProgress:
    durations = body.part("durationMs")
    sources = body.parts("sources", most=1_000)[:MOST_SOURCES]
    operators = body.parts("stateOperators", most=1_000)[:MOST_OPERATORS]
    sink = body.part("sink")
    kept = KeptProgress(
        at_ms=at_ms,
        batch_id=body.integer_or_none("batchId"),
        input_rows=_count(body.raw("numInputRows")),
        input_rows_per_s=_rate(body.raw("inputRowsPerSecond")),
        processed_rows_per_s=_rate(body.raw("processedRowsPerSecond")),
        durations_ms={} if durations is None else _phases(body.raw("durationMs")),
        lag=lag,
    )
    return SparkProgress(
        kept=kept,
        sources=tuple(_source(each) for each in sources),
        operators=tuple(_operator(each) for each in operators),
        sink_description=None if sink is None else _text(sink, "description"),
    )


def _phases(raw: Json) -> dict[str, int]:
    assert isinstance(raw, dict)
    found = {}
    for name, value in list(raw.items())[:MOST_PHASES]:
        duration = _count(value)
        if duration is not None:
            found[name[:100]] = duration
    return found


def _source(body: Body) -> Document:
    end = body.raw("endOffset")
    read, latest = _offsets(end), _offsets(body.raw("latestOffset"))
    topics = {topic for topic, _ in read} | {topic for topic, _ in latest}
    return {
        "topic": min(topics)[:MOST_KEPT_TEXT] if len(topics) == 1 else None,
        "lag": _behind(read, latest),
        "description": _text(body, "description"),
        "input_rows": _count(body.raw("numInputRows")),
        "end_offset": None if end is None else _cut(_as_text(end)),
    }


def _offsets(raw: Json) -> dict[tuple[str, str], int]:
    """Return a source's offsets by topic and partition, empty if it has others. Spark's JSON has
    them as a text or as an object. Names that begin with @ are not topics."""
    try:
        found = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        return {}
    return {
        (topic, partition): offset
        for topic, partitions in (found.items() if isinstance(found, dict) else ())
        if isinstance(partitions, dict) and not topic.startswith("@")
        for partition, offset in partitions.items()
        if _count(offset) is not None
    }


def _behind(
    read: Mapping[tuple[str, str], int], latest: Mapping[tuple[str, str], int]
) -> int | None:
    """Return the number of unread records; None for a source without latest offsets."""
    if not latest:
        return None
    return sum(max(0, end - read.get(place, end)) for place, end in latest.items())


def _operator(body: Body) -> Document:
    return {
        "name": _text(body, "operatorName"),
        "rows_total": _count(body.raw("numRowsTotal")),
        "rows_updated": _count(body.raw("numRowsUpdated")),
        "memory_bytes": _count(body.raw("memoryUsedBytes")),
    }


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _count(value: Json) -> int | None:
    """Return a count; None: Spark leaves numbers out, or writes NaN and the like as texts."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        return None
    return value


def _rate(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
