"""The first screen: brokers, traffic, and current problems."""

from collections import Counter
from collections.abc import Iterable, Sequence

from headrace_console.cluster.changes import TimelineEvent
from headrace_console.cluster.snapshot import Snapshot
from headrace_console.cluster.traffic import Point
from headrace_console.screens.problems import Problem
from storage_engine.tools.document import Document

RECENT = 12
_OF_A_KIND = 2
"""The most partition events of one kind that are shown of a look: a broker that fails causes
hundreds, and its failure must be among the events that are shown."""


def overview(
    snapshot: Snapshot,
    points: Sequence[Point],
    problems: Sequence[Problem],
    events: Sequence[TimelineEvent],
) -> Document:
    """Return the document of the first screen. `events`: newest first."""
    last = points[-1] if points else None
    return {
        "as_of_ms": snapshot.at_ms,
        "unanswered": unanswered(snapshot),
        "controller": _or_none(snapshot.metadata.controller_id),
        "brokers": brokers(snapshot),
        "partitions": partition_counts(snapshot),
        "traffic": {
            "records_per_s": None if last is None else round(last.records_per_s, 1),
            "bytes_per_s": None if last is None else _rounded(last.bytes_per_s),
            "history": [
                {
                    "at_ms": point.at_ms,
                    "records_per_s": round(point.records_per_s, 1),
                    "bytes_per_s": _rounded(point.bytes_per_s),
                }
                for point in points
            ],
        },
        "problems": [each.document for each in problems],
        "recent": _recent(events),
    }


def _recent(events: Iterable[TimelineEvent]) -> list[Document]:
    """Return the newest events; of similar ones a few, with the number of the others."""
    alike: Counter[tuple[int, str]] = Counter()
    told: list[TimelineEvent] = []
    for event in events:
        if event.topic is not None:
            key = event.at_ms, event.kind
            alike[key] += 1
            if alike[key] > _OF_A_KIND:
                continue
        if len(told) < RECENT:
            told.append(event)
    left_out = {key: count - _OF_A_KIND for key, count in alike.items() if count > _OF_A_KIND}
    return [
        event.document | {"left_out": left_out.pop((event.at_ms, event.kind), 0)} for event in told
    ]


def unanswered(snapshot: Snapshot) -> list[Document]:
    """Return the brokers that did not answer the watcher, with the reasons."""
    return [
        {"broker": broker, "what": what, "why": why} for broker, what, why in snapshot.unanswered
    ]


def _or_none(broker: int) -> int | None:
    return None if broker < 0 else broker


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)


def partition_counts(snapshot: Snapshot) -> Document:
    rows = snapshot.partitions()
    return {
        "topics": len(snapshot.metadata.topics),
        "total": len(rows),
        "without_leader": sum(not snapshot.has_leader(partition) for _, partition in rows),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for _, each in rows),
        "under_min_isr": under_min_isr(snapshot),
    }


def under_min_isr(snapshot: Snapshot) -> int | None:
    """Return how many partitions refuse acks=all; None if unknown of one that lacks replicas."""
    found = 0
    for tp, partition in snapshot.partitions():
        is_under = snapshot.is_under_min_isr(tp.topic, partition)
        if is_under is None and len(partition.isr) < len(partition.replicas):
            return None
        found += bool(is_under)
    return found


def brokers(snapshot: Snapshot) -> list[Document]:
    """Return the rows of live brokers and of missing ones."""
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for _, partition in snapshot.partitions():
        leaders[partition.leader] += 1
        replicas.update(partition.replicas)
    rows: list[Document] = []
    for broker in sorted(snapshot.metadata.brokers.keys() | snapshot.gone.keys()):
        known = snapshot.metadata.brokers.get(broker)
        state = "offline" if known is None else "silent" if broker in snapshot.silent else "up"
        rows.append(
            {
                "id": broker,
                "host": None if known is None else known.host,
                "port": None if known is None else known.port,
                "rack": None if known is None else known.rack,
                "state": state,
                "is_controller": broker == snapshot.metadata.controller_id,
                "leaders": leaders[broker],
                "replicas": replicas[broker],
                "disk": [
                    {
                        "path": disk.path,
                        "total_bytes": disk.total_bytes,
                        "free_bytes": disk.free_bytes,
                        "used_by_log_bytes": disk.log_bytes,
                        "error": disk.error,
                    }
                    for disk in snapshot.disks.get(broker, ())
                ],
                "certificate_expires_ms": snapshot.certificates.get(broker),
                "last_seen_ms": snapshot.gone.get(broker) or None
                if known is None
                else snapshot.at_ms,
            }
        )
    return rows
