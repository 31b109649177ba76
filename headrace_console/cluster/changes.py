"""Changes between two looks of the watcher: of leaders, in-sync replicas, brokers and topics.

The time of an event is exact to the interval between two looks, and two changes within it are
one event. Source: R-CON7.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Protocol, TypedDict, Unpack

from headrace_console.cluster.snapshot import Snapshot
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.metadata import MetadataPartition
from storage_engine.tools.document import Document

KEPT = 2_000
"""The number of events kept; a failover of 5,000 partitions adds one for each topic."""
SINGLE = 20
"""The most changes of a topic in one look that are single events; more are one event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """A change in the cluster, for the timeline."""

    at_ms: int
    kind: str
    words: str
    source: str = "console"
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    before: str | None = None
    after: str | None = None
    epoch: int | None = None
    observed_within_ms: int = 0

    @property
    def document(self) -> Document:
        """The event as a document of the API."""
        return asdict(self)


class Changes:
    """The events of one upstream, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[TimelineEvent] = deque(maxlen=KEPT)
        self._unanswered_since_ms: dict[int, int] = {}
        self.since_ms: int | None = None
        """The time of the first look; None before it."""

    def events(self) -> list[TimelineEvent]:
        with self._lock:
            return list(self._events)

    def compare(self, before: Snapshot | None, now: Snapshot) -> None:
        """Add events for the differences between two snapshots."""
        with self._lock:
            if self.since_ms is None:
                self.since_ms = now.at_ms
            if before is not None:
                for event in _differences(before, now):
                    self._events.append(event)
            self._events.extend(self._answers_again(now))

    def _answers_again(self, now: Snapshot) -> Iterator[TimelineEvent]:
        """Yield an event for each broker that was silent and now answers, or is gone."""
        for broker in now.silent:
            self._unanswered_since_ms.setdefault(broker, now.at_ms)
        for broker, since_ms in list(self._unanswered_since_ms.items()):
            if broker not in now.silent:
                del self._unanswered_since_ms[broker]
                left = "is gone from the cluster" if broker in now.gone else "answers again"
                yield TimelineEvent(
                    at_ms=now.at_ms,
                    kind="client",
                    broker=broker,
                    words=f"the console got no answer from broker {broker} for about "
                    f"{(now.at_ms - since_ms) / 1000:.0f} s; now it {left}",
                    observed_within_ms=2_000,
                )


class _Place(TypedDict, total=False):
    topic: str
    partition: int
    epoch: int


class _More(_Place, total=False):
    broker: int
    before: str
    after: str


class _MakeEvent(Protocol):
    def __call__(self, kind: str, words: str, **more: Unpack[_More]) -> TimelineEvent: ...


def _differences(before: Snapshot, now: Snapshot) -> Iterator[TimelineEvent]:
    within_ms = now.at_ms - before.at_ms
    old, new = before.metadata, now.metadata

    def event(kind: str, words: str, **more: Unpack[_More]) -> TimelineEvent:
        return TimelineEvent(
            at_ms=now.at_ms, kind=kind, words=words, observed_within_ms=within_ms, **more
        )

    for broker in sorted(old.brokers.keys() - new.brokers.keys()):
        yield event("broker_gone", f"broker {broker} left the cluster", broker=broker)
    for broker in sorted(new.brokers.keys() - old.brokers.keys()):
        yield event("broker_back", f"broker {broker} is in the cluster", broker=broker)
    if old.controller_id != new.controller_id:
        to = _broker(new.controller_id)
        yield event(
            "controller",
            f"the controller is {to}, it was {_broker(old.controller_id)}",
            before=str(old.controller_id),
            after=str(new.controller_id),
        )
    for name in sorted(old.topics.keys() - new.topics.keys()):
        yield event("topic_deleted", f"topic '{name}' is gone", topic=name)
    for name in sorted(new.topics.keys() - old.topics.keys()):
        yield event("topic_created", f"topic '{name}' is new", topic=name)
    for name in sorted(old.topics.keys() & new.topics.keys()):
        yield from _of_topic(name, old, new, event)


def _of_topic(
    name: str, old: ClusterMetadata, new: ClusterMetadata, event: _MakeEvent
) -> Iterator[TimelineEvent]:
    before, now = old.topics[name].partitions, new.topics[name].partitions
    if before == now:
        return
    found: list[TimelineEvent] = []
    for number, partition in now.items():
        was = before.get(number)
        if was is not None and was != partition:
            found += _of_partition(TopicPartition(name, number), was, partition, event)
    if len(found) <= SINGLE:
        yield from found
        return
    kinds: Mapping[str, int] = {
        kind: sum(each.kind == kind for each in found) for kind in ("leader", "no_leader", "isr")
    }
    told = {"leader": "other leaders", "no_leader": "no leader", "isr": "other in-sync replicas"}
    words = ", ".join(f"{count} have {told[kind]}" for kind, count in kinds.items() if count)
    yield event("leader", f"partitions of '{name}': {words}", topic=name)


def _of_partition(
    tp: TopicPartition, was: MetadataPartition, now: MetadataPartition, event: _MakeEvent
) -> Iterator[TimelineEvent]:
    place: _Place = {"topic": tp.topic, "partition": tp.partition, "epoch": now.leader_epoch}
    if was.leader != now.leader:
        kind = "no_leader" if now.leader < 0 else "leader"
        words = (
            f"{tp} has no leader, before it was {_broker(was.leader)}"
            if now.leader < 0
            else f"{_broker(now.leader)} leads {tp}, before it was {_broker(was.leader)}"
        )
        yield event(kind, words, before=str(was.leader), after=str(now.leader), **place)
    if set(was.isr) != set(now.isr):
        yield event(
            "isr",
            f"the in-sync replicas of {tp} are {_ids(now.isr)}, before they were {_ids(was.isr)}",
            before=_ids(was.isr),
            after=_ids(now.isr),
            **place,
        )


def _broker(broker: int) -> str:
    return "nobody" if broker < 0 else f"broker {broker}"


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"
