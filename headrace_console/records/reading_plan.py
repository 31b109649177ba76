"""The offsets between which a search reads each partition, and where the next one goes on.

    newest           backwards from the ends, in windows that grow, until enough is found
    earliest, offset:N, time:MS, after:…   forwards

A continuation is a text for the API: `after:0=17,2=5`, `before:0=17`. Source: R-CON8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace_console.given import bad
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.core.errors import DeadlineExceededError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.list_offsets import API as LIST_OFFSETS
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.tools.document import Document

MOST_PLACES = 2_000
"""The most partitions in a continuation."""
_LEVELS = {"read_uncommitted": 0, "read_committed": 1}

Ranges = dict[TopicPartition, tuple[int, int]]


@dataclass(slots=True, kw_only=True)
class ReadingPlan:
    """The half-open ranges that are left to read, and the direction."""

    backwards: bool
    left: Ranges
    unanswered: list[Document]

    def next_windows(self, most_records: int) -> Ranges:
        """Return the next step's ranges; backwards, at most `most_records` of each partition."""
        windows = {}
        for tp, (start, end) in self.left.items():
            if start < end:
                windows[tp] = (
                    (max(start, end - most_records), end) if self.backwards else (start, end)
                )
        return windows

    def read(self, tp: TopicPartition, start: int, end: int) -> None:
        """Mark a range as read."""
        first, last = self.left[tp]
        self.left[tp] = (first, min(last, start)) if self.backwards else (max(first, end), last)

    @property
    def is_done(self) -> bool:
        return all(start >= end for start, end in self.left.values())

    def continuation(self) -> str | None:
        """Return where the next search goes on; None when all is read."""
        places = [
            f"{tp.partition}={end if self.backwards else start}"
            for tp, (start, end) in sorted(self.left.items())
            if start < end
        ]
        if not places:
            return None
        return f"{'before' if self.backwards else 'after'}:{','.join(places[:MOST_PLACES])}"


def bounds(
    cluster: Cluster, partitions: Sequence[TopicPartition], at_ms: int, isolation: str
) -> tuple[dict[TopicPartition, int], list[Document]]:
    """Return the partitions' offsets at `at_ms`, which may be EARLIEST or LATEST, and a document
    for each answer that is missing. It does not retry, and waits for no leader."""
    by_leader: dict[int, list[ListOffsetsPartition]] = {}
    missing: list[Document] = []
    for tp in partitions:
        leader = cluster.known_leader(tp)
        if leader is None:
            missing.append({"broker": None, "what": str(tp), "why": f"{tp} has no leader now"})
        else:
            wanted = ListOffsetsPartition(tp.topic, tp.partition, at_ms, leader.epoch)
            by_leader.setdefault(leader.broker_id, []).append(wanted)
    level = _LEVELS[isolation]
    found: dict[TopicPartition, int] = {}
    asked = [
        (broker, LIST_OFFSETS, ListOffsetsRequest(rows, isolation_level=level))
        for broker, rows in by_leader.items()
    ]
    answers = cluster.request_all(asked) if asked else []
    for (broker, _, _), answer in zip(asked, answers, strict=True):
        if isinstance(answer, KafkaError | DeadlineExceededError):
            missing.append({"broker": broker, "what": "offsets", "why": str(answer)})
            continue
        for row in answer.partitions:
            tp = TopicPartition(row.topic, row.partition)
            if row.error_code:
                missing.append({"broker": broker, "what": str(tp), "why": "its leader changes now"})
            else:
                found[tp] = row.offset
    return found, missing


def plan_reading(
    cluster: Cluster, topic: str, partitions: Sequence[int], start: str, isolation: str
) -> ReadingPlan:
    """ConsoleError for a wrong `start`; KafkaError for an unknown topic or partition."""
    known = cluster.topic(topic).partitions
    for number in partitions:
        if number not in known:
            raise cluster.unknown(TopicPartition(topic, number))
    places = None if ":" not in start else _places(start)
    wanted = list(partitions) or (
        [number for number in known if places is None or number in places]
    )
    tps = [TopicPartition(topic, number) for number in wanted]
    cluster.refresh([topic])
    ends, unanswered = bounds(cluster, tps, LATEST, isolation)
    starts, _ = bounds(cluster, list(ends), EARLIEST, "read_uncommitted")
    ranges = {tp: (starts[tp], ends[tp]) for tp in ends if tp in starts}
    backwards = start == "newest" or start.startswith("before:")
    kind, _, rest = start.partition(":")
    if kind == "offset":
        offset = _offset(rest)
        ranges = {tp: (max(first, offset), end) for tp, (first, end) in ranges.items()}
    elif kind == "time":
        at, _ = bounds(cluster, list(ranges), _offset(rest), isolation)
        ranges = {
            tp: (end if at.get(tp, -1) < 0 else max(first, at[tp]), end)
            for tp, (first, end) in ranges.items()
        }
    elif places is not None:
        ranges = {
            tp: (first, min(end, places[tp.partition]))
            if backwards
            else (max(first, places[tp.partition]), end)
            for tp, (first, end) in ranges.items()
            if tp.partition in places
        }
    elif start not in ("newest", "earliest"):
        raise bad("parameter 'from' must be newest, earliest, offset:N or time:MS")
    return ReadingPlan(backwards=backwards, left=ranges, unanswered=unanswered)


def _places(start: str) -> Mapping[int, int] | None:
    kind, _, rest = start.partition(":")
    if kind not in ("before", "after"):
        return None
    places = {}
    for part in rest.split(","):
        number, _, offset = part.partition("=")
        if not number.isascii() or not number.isdigit() or len(number) > 10:
            raise bad("parameter 'from' is not a position that an earlier answer has returned")
        places[int(number)] = _offset(offset)
    return places


def _offset(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise bad("parameter 'from' must have a whole number after the colon")
    return int(text)
