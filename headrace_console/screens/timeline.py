"""The leaders of partitions over time: from the brokers' state-change logs, if the console can read
them, else from its own observations. Source: R-CON7.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace_console.cluster.changes import TimelineEvent
from headrace_console.cluster.snapshot import Snapshot
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.document import Document

OBSERVED_MS = 2_000
MOST_LANES = 100
_BROKERS_WORDS = (
    "From the state-change logs of the brokers, exact to a millisecond of each broker's clock; "
    "brokers that joined or left as the console saw them, exact to two seconds."
)
_OBSERVED_WORDS = (
    "Changes that the console has seen since it started. It reads the state of the cluster "
    "every two seconds while a page is open, else every ten, so that several changes in between "
    "appear as one. For all changes, read the brokers' state-change logs with headrace "
    "merge-state-log."
)


_FIELD = re.compile(r"(\w+)=(?:\[([^\]]*)\]|(\S+))")


class LoggedChange(NamedTuple):
    """A line of a broker's state-change log."""

    at_ms: int
    broker: int
    partition: TopicPartition
    text: str


StateChangeSource = Callable[[], Sequence[LoggedChange]]
"""Returns the newest changes, oldest first, the same object if nothing is new; it may read
files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineFilter:
    """The conditions on events; None: no such condition. `until_ms` is exclusive."""

    since_ms: int | None = None
    until_ms: int | None = None
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    limit: int = 200

    def lets(self, event: TimelineEvent) -> bool:
        return (
            (self.since_ms is None or event.at_ms >= self.since_ms)
            and (self.until_ms is None or event.at_ms < self.until_ms)
            and (self.topic is None or event.topic == self.topic)
            and (self.partition is None or event.partition == self.partition)
            and (self.broker is None or _is_about(event, self.broker))
        )


def _is_about(event: TimelineEvent, broker: int) -> bool:
    return event.broker == broker or str(broker) in (event.before, event.after)


def logged_event(change: LoggedChange) -> TimelineEvent:
    """Return a line of a log as an event. Its words are the broker's."""
    fields = {name: many or one for name, many, one in _FIELD.findall(change.text)}
    kind, after = "state", None
    if change.text.startswith("became leader"):
        kind, after = "leader", str(change.broker)
    elif change.text.startswith("isr changed"):
        kind, after = "isr", fields.get("isr")
    epoch = fields.get("leader_epoch", "")
    return TimelineEvent(
        at_ms=change.at_ms,
        kind=kind,
        topic=change.partition.topic,
        partition=change.partition.partition,
        broker=change.broker,
        after=after,
        epoch=int(epoch) if epoch.isdigit() else None,
        words=f"broker {change.broker}: {change.text}",
        source=f"broker {change.broker}",
    )


def timeline(
    observed: Sequence[TimelineEvent],
    logged: Sequence[TimelineEvent] | None,
    snapshot: Snapshot,
    wanted: TimelineFilter,
    since_ms: int | None,
) -> Document:
    """Return the events of topics that the user sees. `logged`: None if no log can be read."""
    known = snapshot.metadata.topics
    if logged is None:
        events = list(observed)
    else:
        # The brokers' logs are exact; the console adds events that they do not have.
        events = [each for each in observed if each.partition is None]
        events += [each for each in logged if each.topic in known]
    events = [each for each in events if wanted.lets(each)]
    events.sort(key=lambda each: each.at_ms)
    shown = events[-wanted.limit :]
    return {
        "as_of_ms": snapshot.at_ms,
        "unanswered": [],
        "source": "observed" if logged is None else "brokers",
        "resolution_ms": OBSERVED_MS if logged is None else 0,
        "words": _OBSERVED_WORDS if logged is None else _BROKERS_WORDS,
        "events": [each.document for each in reversed(shown)],
        "lanes": lanes(events, snapshot, wanted, since_ms),
    }


def lanes(
    events: Sequence[TimelineEvent],
    snapshot: Snapshot,
    wanted: TimelineFilter,
    since_ms: int | None,
) -> list[Document]:
    """Return the leaders of each partition over time: partitions with changes first."""
    of_partitions: dict[TopicPartition, list[TimelineEvent]] = {}
    for event in events:
        if event.kind in ("leader", "no_leader") and event.partition is not None:
            assert event.topic is not None
            tp = TopicPartition(event.topic, event.partition)
            of_partitions.setdefault(tp, []).append(event)
    changed = sorted(of_partitions, key=lambda tp: (-len(of_partitions[tp]), tp))
    if wanted.topic is not None and wanted.topic in snapshot.metadata.topics:
        numbers = snapshot.metadata.topics[wanted.topic].partitions
        others = (TopicPartition(wanted.topic, number) for number in numbers)
        changed += [
            tp
            for tp in others
            if tp not in of_partitions and wanted.partition in (None, tp.partition)
        ]
    return [
        {**tp._asdict(), "spans": _spans(tp, of_partitions.get(tp, []), snapshot, since_ms)}
        for tp in changed[:MOST_LANES]
    ]


def _spans(
    tp: TopicPartition, events: Sequence[TimelineEvent], snapshot: Snapshot, since_ms: int | None
) -> list[Document]:
    topic = snapshot.metadata.topics.get(tp.topic)
    partition = None if topic is None else topic.partitions.get(tp.partition)
    if not events:
        leader = None if partition is None or partition.leader < 0 else partition.leader
        epoch = None if partition is None else partition.leader_epoch
        return [_span(leader, since_ms, None, epoch)]
    spans: list[Document] = []
    first = events[0]
    if first.before is not None and since_ms is not None and since_ms < first.at_ms:
        spans.append(_span(_leader(first.before), since_ms, first.at_ms, None))
    for place, event in enumerate(events):
        until_ms = events[place + 1].at_ms if place + 1 < len(events) else None
        spans.append(_span(_leader(event.after), event.at_ms, until_ms, event.epoch))
    return spans


def _span(
    leader: int | None, from_ms: int | None, until_ms: int | None, epoch: int | None
) -> Document:
    return {"leader": leader, "from_ms": from_ms, "until_ms": until_ms, "epoch": epoch}


def _leader(text: str | None) -> int | None:
    return None if text is None or not text.isdigit() else int(text)
