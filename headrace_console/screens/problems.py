"""Current problems, in words with a remedy: from a snapshot and the queries' posts.

Nothing here sends requests. A problem keeps its id and its start time as long as it is seen.
Source: R-CON4.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from urllib.parse import quote

from headrace_console.cluster.group_looks import WITHOUT_MEMBERS
from headrace_console.cluster.snapshot import SeenGroup, ShownDisk, Snapshot, WaitingPartition
from headrace_console.console_settings import Thresholds
from headrace_console.queries.query_store import SparkQuery
from storage_engine.core.ids import TopicPartition
from storage_engine.core.printable import printable
from storage_engine.protocol.apis.metadata import MetadataPartition
from storage_engine.tools.document import Document

MOST_SUBJECTS = 20
_DAY_MS = 24 * 60 * 60 * 1000
CRITICAL, WARNING = "critical", "warning"
NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem of the cluster or of a query."""

    id: str
    """The kind and, behind a colon, the subject."""
    severity: str
    what: str
    do: str
    link: str | None = None
    subjects: Sequence[str] = ()
    count: int = 1
    since_ms: int | None = None

    @property
    def kind(self) -> str:
        return self.id.partition(":")[0]

    @property
    def document(self) -> Document:
        return {
            **asdict(self),
            "kind": self.kind,
            "subjects": list(self.subjects[:MOST_SUBJECTS]),
        }


class SeenProblems:
    """The time when each problem was first seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since_ms: dict[str, int] = {}

    def dated(self, problems: Iterable[Problem], now_ms: int) -> list[Problem]:
        """Return the problems with their start: critical ones first, then the oldest."""
        with self._lock:
            found = list(problems)
            since = {each.id: self._since_ms.get(each.id, now_ms) for each in found}
            self._since_ms = since
        dated = [
            each if each.since_ms is not None else replace(each, since_ms=since[each.id])
            for each in found
        ]
        return sorted(dated, key=lambda each: (each.severity != CRITICAL, each.since_ms, each.id))


def find_problems(
    snapshot: Snapshot, queries: Iterable[SparkQuery], thresholds: Thresholds, *, now_ms: int
) -> Iterator[Problem]:
    """Yield all problems."""
    yield from _of_brokers(snapshot)
    yield from _of_partitions(snapshot)
    yield from _of_disks(snapshot, thresholds)
    yield from _of_certificates(snapshot, thresholds, now_ms)
    yield from _of_transactions(snapshot, thresholds, now_ms)
    yield from _of_groups(snapshot, thresholds)
    for query in queries:
        problem = query_problem(query, thresholds, now_ms)
        if problem is not None:
            yield problem


def _of_brokers(snapshot: Snapshot) -> Iterator[Problem]:
    for broker, seen_ms in sorted(snapshot.gone.items()):
        ago = f"; the console saw it last at {_clock(seen_ms)}" if seen_ms else ""
        yield Problem(
            id=f"broker_offline:{broker}",
            severity=CRITICAL,
            what=f"Broker {broker} is not in the cluster{ago}.",
            do="Its log (broker.log) says why it ended. Start it again: `headrace "
            f"start-broker --dir DIR {broker}` for a cluster of `headrace up`, else its "
            "service. If it will never come back, move its replicas with `headrace "
            "reassign`.",
            subjects=[f"broker {broker}"],
        )
    for broker, why in sorted(snapshot.silent.items()):
        yield Problem(
            id=f"broker_silent:{broker}",
            severity=CRITICAL,
            what=f"Broker {broker} does not answer the console: {why}.",
            do="If its process runs, check whether its machine is overloaded or its "
            "network is cut. If it has ended, the cluster removes it within its session "
            "timeout.",
            subjects=[f"broker {broker}"],
        )
    if snapshot.metadata.controller_id == NOBODY:
        yield Problem(
            id="no_controller",
            severity=CRITICAL,
            what="The cluster has no controller, so no leader is elected and no topic created.",
            do="A new one is elected within seconds; if not, check that ZooKeeper answers.",
        )


def _of_partitions(snapshot: Snapshot) -> Iterator[Problem]:
    leaderless: list[TopicPartition] = []
    short: list[TopicPartition] = []
    waits: dict[TopicPartition, str] = {}
    for tp, partition in snapshot.partitions():
        if not snapshot.has_leader(partition):
            leaderless.append(tp)
            away = [each for each in partition.isr if each not in snapshot.metadata.brokers]
            waits[tp] = f"broker {', '.join(map(str, away))}" if away else "an election"
        elif len(partition.isr) < len(partition.replicas):
            short.append(tp)
    if leaderless:
        first = leaderless[0]
        yield Problem(
            id="without_leader",
            severity=CRITICAL,
            what=f"{_many(leaderless)} no leader: clients can neither read nor write there. "
            f"{first} waits for {waits[first]}.",
            do="Start the brokers of the last in-sync replicas. Only if they are lost for "
            "good, set unclean.leader.election.enable=true on the topic, which loses "
            "the records that only those brokers had.",
            link=f"#/topics/{first.topic}",
            subjects=[str(tp) for tp in leaderless],
            count=len(leaderless),
        )
    if short:
        missing = sorted(
            {
                replica
                for tp in short
                for replica in _partition(snapshot, tp).replicas
                if replica not in _partition(snapshot, tp).isr
            }
        )
        refused = [
            tp for tp in short if snapshot.is_under_min_isr(tp.topic, _partition(snapshot, tp))
        ]
        yield Problem(
            id="under_replicated",
            severity=CRITICAL if refused else WARNING,
            what=f"{_many(short)} fewer replicas in sync than they should have; missing: broker "
            f"{', '.join(map(str, missing))}.{_refusal(refused)}",
            do="If such a broker is offline, start it. If it runs, it is behind: check its "
            "disk, its network, and follower quotas (`headrace quotas list`).",
            link=f"#/topics/{short[0].topic}",
            subjects=[str(tp) for tp in short],
            count=len(short),
        )


def _partition(snapshot: Snapshot, tp: TopicPartition) -> MetadataPartition:
    return snapshot.metadata.topics[tp.topic].partitions[tp.partition]


def _refusal(refused: Sequence[TopicPartition]) -> str:
    if not refused:
        return ""
    if len(refused) == 1:
        return f" {refused[0]} has fewer than min.insync.replicas and refuses acks=all."
    return f" {len(refused)} of them have fewer than min.insync.replicas and refuse acks=all."


def _many(partitions: Sequence[TopicPartition]) -> str:
    if len(partitions) == 1:
        return f"Partition {partitions[0]} has"
    return f"{len(partitions)} partitions have"


def _of_disks(snapshot: Snapshot, thresholds: Thresholds) -> Iterator[Problem]:
    for broker, disks in sorted(snapshot.disks.items()):
        for disk in disks:
            name = f"broker {broker}, {disk.path}"
            if disk.error is not None:
                yield Problem(
                    id=f"failed_disk:{broker}:{disk.path}",
                    severity=CRITICAL,
                    what=f"Broker {broker} does not use its log dir {disk.path} any more: "
                    f"{disk.error}.",
                    do="Check the broker's log and the disk; replace the disk, then start "
                    "the broker again.",
                    subjects=[name],
                )
            elif disk.total_bytes and disk.free_bytes is not None:
                used = 100 * (1 - disk.free_bytes / disk.total_bytes)
                is_full = disk.free_bytes <= _full_at(disk)
                if used >= thresholds.disk_full_percent or is_full:
                    yield Problem(
                        id=f"full_disk:{broker}:{disk.path}",
                        severity=CRITICAL if used >= 97 or is_full else WARNING,
                        what=_full_words(broker, disk, used, is_full=is_full),
                        do="Make room: shorten retention.ms or retention.bytes of the "
                        "largest topics, delete topics that are not used, or move "
                        "partitions to other brokers (`headrace reassign`).",
                        link="#/topics?sort=-size_bytes",
                        subjects=[name],
                    )


_ROUNDING_BYTES = 1 << 20
"""An append that does not fit is refused, so a full disk has some bytes more than the reserve."""


def _full_at(disk: ShownDisk) -> int:
    """Return the number of free bytes at which the disk is full."""
    return disk.reserve_bytes + _ROUNDING_BYTES if disk.reserve_bytes else 0


def _full_words(broker: int, disk: ShownDisk, used: float, *, is_full: bool) -> str:
    free = _size(disk.free_bytes or 0)
    if not is_full:
        return (
            f"The disk of broker {broker} with {disk.path} is {used:.0f} % full: {free} are "
            "free. When it is full, the broker refuses produce requests."
        )
    kept = ""
    if disk.reserve_bytes:
        kept = f", and log.dir.min.free.bytes keeps {_size(disk.reserve_bytes)} of them"
    return (
        f"The disk of broker {broker} with {disk.path} is full: {free} are free{kept}. The "
        "broker refuses produce requests; producers retry until there is room or "
        "delivery.timeout.ms has passed."
    )


def _of_certificates(snapshot: Snapshot, thresholds: Thresholds, now_ms: int) -> Iterator[Problem]:
    for broker, ends_ms in sorted(snapshot.certificates.items()):
        days = (ends_ms - now_ms) / _DAY_MS
        if days <= thresholds.certificate_days:
            over = days <= 0
            yield Problem(
                id=f"certificate:{broker}",
                severity=CRITICAL if days <= 7 else WARNING,
                what=f"The certificate of broker {broker} "
                + ("has expired." if over else f"expires in {days:.0f} days.")
                + " Then clients refuse to connect.",
                do="Put a new certificate into the broker's file (ssl.keystore.location), "
                "then set that path again: `kafka-configs.sh --alter --entity-type "
                f"brokers --entity-name {broker} --add-config "
                "listener.name.LISTENER.ssl.keystore.location=PATH`. The broker loads "
                "it without a restart.",
                subjects=[f"broker {broker}"],
            )


def _of_transactions(snapshot: Snapshot, thresholds: Thresholds, now_ms: int) -> Iterator[Problem]:
    """Yield a problem for each transaction, with all partitions that it holds up."""
    by_owner: dict[str, list[WaitingPartition]] = {}
    for row in snapshot.open_transactions:
        if row.since_ms is not None and now_ms - row.since_ms >= thresholds.stuck_after_ms:
            by_owner.setdefault(owner_key(row), []).append(row)
    for key, rows in sorted(by_owner.items()):
        first = min(rows, key=lambda row: row.since_ms or 0)
        open_for = _duration(now_ms - (first.since_ms or 0))
        waiting = sum(row.end_offset - row.stable_offset for row in rows)
        yield Problem(
            id=f"stuck_transaction:{key}",
            severity=WARNING,
            what=f"{owner_words(first)} has been open for {open_for}: "
            f"read_committed readers of {_names(rows)} wait, with {waiting} records behind it.",
            do=remedy(first),
            link=f"#/waiting?topic={first.tp.topic}",
            subjects=[str(row.tp) for row in rows],
            count=len(rows),
            since_ms=first.since_ms,
        )


def _of_groups(snapshot: Snapshot, thresholds: Thresholds) -> Iterator[Problem]:
    """Yield groups that are behind for long, the worst first; not groups without members since the
    console watches: their programs may have ended days ago."""
    late = [
        each
        for each in (snapshot.groups or {}).values()
        if each.sure_lag_ms >= thresholds.lag_after_ms and each.lag > 0 and each.had_members
    ]
    late.sort(key=lambda each: (-each.sure_lag_ms, each.group))
    for group in late[:MOST_SUBJECTS]:
        yield Problem(
            id=f"lagging_group:{group.group}",
            severity=WARNING,
            what=_lag_words(group),
            do=_group_remedy(group),
            link=f"#/groups/{quote(group.group, safe='')}",
            subjects=[] if group.worst is None else [str(group.worst)],
        )


def _lag_words(group: SeenGroup) -> str:
    where = "" if group.worst is None else f", the oldest of them in {group.worst}"
    return (
        f"Group '{printable(group.group)}' is {group.lag} records behind; the first of them has "
        f"waited for {_duration(group.sure_lag_ms)}{where}."
    )


def _group_remedy(group: SeenGroup) -> str:
    if group.state in WITHOUT_MEMBERS:
        return "It has no members: start its consumers again."
    return (
        "Check in its consumers' logs whether they process records. If they do, start more of "
        "them, at most one for each partition, or make each faster. `headrace groups describe "
        "GROUP` shows which partition is behind, and which member reads it."
    )


def owner_key(row: WaitingPartition) -> str:
    """Return the key of a transaction: its sink, or else an id."""
    if row.sink is not None:
        return "/".join(map(str, row.sink))
    return row.transactional_id or str(row.producer_id or row.tp)


def owner_words(row: WaitingPartition) -> str:
    """Return the owner of a transaction, in words."""
    if row.sink is not None:
        sink, query, batch = row.sink
        return f"Micro-batch {batch} of query {query} to sink '{sink}'"
    if row.transactional_id is not None:
        return f"The transaction of '{row.transactional_id}'"
    if row.producer_id is not None:
        return f"A transaction of producer {row.producer_id}, which no coordinator lists,"
    return "A transaction"


def remedy(row: WaitingPartition) -> str:
    """Return how to end the transaction, in words."""
    ends = ""
    if row.timeout_ms is not None:
        ends = (
            f" The coordinator aborts it {_duration(row.timeout_ms)} after its "
            f"{'last sign of life' if row.sink is not None else 'begin'}."
        )
    if row.sink is not None:
        return (
            "If the query still works on this micro-batch, wait. If it was killed, start it "
            "again: its next commit ends the open transaction." + ends
        )
    if row.transactional_id is not None:
        return (
            "Check whether its program still runs. If it was killed, start it again with the "
            "same transactional.id: that aborts the open transaction." + ends
        )
    return (
        "Find the program whose log has this producer id; `kafka-transactions.sh abort` ends an "
        "orphan." + ends
    )


def query_problem(query: SparkQuery, thresholds: Thresholds, now_ms: int) -> Problem | None:
    """Return the problem of a query; None: there is none."""
    name = f"Query '{query.name}'" if query.name else f"Query {query.id}"
    link = f"#/queries/{query.id}"
    state = query.state(now_ms)
    if state == "failed":
        reason = (query.exception or "").strip().splitlines() or ["no reason was given"]
        return Problem(
            id=f"failed_query:{query.id}",
            severity=CRITICAL,
            what=f"{name} has failed: {reason[0][:300]}",
            do="Read the driver's log, and start the query again with the same checkpoint: "
            "it continues at the micro-batch that failed, and the sink drops rows that "
            "are committed already.",
            link=link,
            since_ms=query.last_ms,
        )
    if state == "silent":
        return Problem(
            id=f"lagging_query:{query.id}",
            severity=WARNING,
            what=f"{name} has posted nothing for {_duration(now_ms - query.last_ms)}.",
            do="Check whether its driver still runs, and whether it reaches this console.",
            link=link,
            since_ms=query.last_ms,
        )
    behind_ms = query.behind_ms() if state == "active" else None
    if behind_ms is not None and behind_ms >= thresholds.lag_after_ms:
        last = query.last
        rate = None if last is None else last.processed_rows_per_s
        told = (
            "it processes none"
            if not rate
            else f"at its {rate:.0f} records a second that takes {_duration(behind_ms)}"
        )
        return Problem(
            id=f"lagging_query:{query.id}",
            severity=WARNING,
            what=f"{name} is {query.lag} records behind; {told}.",
            do="Give it more cores or more partitions to read in parallel, or a smaller "
            "micro-batch if a state operator is slow; its page shows which phase takes the time.",
            link=link,
        )
    return None


def _names(rows: Sequence[WaitingPartition]) -> str:
    names = [str(row.tp) for row in rows[:3]]
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return ", ".join(names) + more


def _duration(duration_ms: int) -> str:
    seconds = max(0, duration_ms) / 1000
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * 86_400:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86_400:.0f} days" if seconds < 1e9 else "for ever"


def _size(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _clock(at_ms: int) -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime(at_ms / 1000))
