"""Makes one backup of a running cluster.

    passes   copy each log behind the earlier backup, until a pass is short: the bodies
    moment   find it in the coordinators' logs
    tails    copy what of the rest belongs to the moment
    znodes   copy ZooKeeper's part, which is newer than all that it must know (producer ids)
    manifest last of all: with it the backup exists

Whatever ends this before the manifest is there leaves the earlier backups as they were, and files
that nothing names, which `--prune` removes.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from crc32c import crc32c

from storage_engine.backup import catalog
from storage_engine.backup.cut import BackupMoment
from storage_engine.backup.errors import BackupError
from storage_engine.backup.log_copy import LogCopy
from storage_engine.backup.manifest import Manifest, StoredFile, TopicBackup
from storage_engine.backup.moment_reader import STATE_TOPIC, MomentReader
from storage_engine.backup.reading import (
    Throttle,
    between,
    ends_of,
    is_gone,
    read_batches,
    starts_of,
)
from storage_engine.backup.store import BackupStore
from storage_engine.backup.tails import GROUPS_TOPIC, Tails
from storage_engine.backup.znodes import Nodes, encode_nodes
from storage_engine.client.admin.topics import describe_topic_configs
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

TOGETHER = 8
"""Partitions that are copied at once: each has a file, which an object store sends in parts."""

SHORT_PASS_S = 2.0
MOST_PASSES = 5
MOST_CUTS = 5

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic while it is copied."""

    name: str
    topic_id: UUID
    compacted: bool
    delete_retention_ms: int
    logs: dict[int, LogCopy]


class BackupMaker:
    """Used once."""

    def __init__(
        self,
        cluster: Cluster,
        store: BackupStore,
        read_nodes: Callable[[], Nodes],
        *,
        has_secrets: bool,
        throttle: Throttle,
        tell: Tell,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._read_nodes = read_nodes
        self._has_secrets = has_secrets
        self._throttle = throttle
        self._tell = tell
        self._begun_ms = _now_ms()
        self._id = uuid.uuid4().hex
        self._before = catalog.newest_manifest(store)
        self._number = 1 if self._before is None else self._before.number + 1
        self._suffix = catalog.suffix(self._number, self._id)
        self._topics: dict[str, _Topic] = {}
        self._copied_ms = 0

    def make(self) -> Manifest:
        """Return the manifest of the backup, which is in the store."""
        try:
            return self._make()
        except BaseException:
            for log in self._logs():
                log.abandon()
            raise

    def _make(self) -> Manifest:
        cluster_id = self._cluster.metadata([]).cluster_id or ""
        if self._before is not None and self._before.cluster_id != cluster_id:
            raise BackupError(
                f"{self._store.url} has backups of the cluster {self._before.cluster_id}, and this "
                f"is {cluster_id}: give each cluster a place of its own"
            )
        for number in range(1, MOST_PASSES + 1):
            began_s = time.monotonic()
            self._copy_bodies(number)
            if time.monotonic() - began_s < SHORT_PASS_S:
                break
        moment = self._cut()
        self._copy_state(moment)
        znodes = self._write_nodes()
        manifest = Manifest(
            number=self._number,
            backup_id=self._id,
            cluster_id=cluster_id,
            begun_ms=self._begun_ms,
            ended_ms=_now_ms(),
            has_secrets=self._has_secrets,
            new_bytes=znodes.size + sum(_new_bytes(log) for log in self._logs()),
            znodes=znodes,
            topics=tuple(self._topic_backup(each) for each in self._topics.values()),
        )
        catalog.write_manifest(self._store, manifest)
        return manifest

    def _logs(self) -> Iterator[LogCopy]:
        for topic in self._topics.values():
            yield from topic.logs.values()

    # --- topics ---

    def _refresh_topics(self) -> None:
        """Take topics and partitions that have come, and leave out topics that have gone."""
        found = self._cluster.metadata().topics
        for name, topic in list(self._topics.items()):
            if name not in found or found[name].topic_id != topic.topic_id:
                self._drop(topic)
        for name in sorted(found):
            known = self._topics.get(name) or self._new_topic(name, found[name].topic_id)
            if known is None:
                continue
            self._topics[name] = known
            for number, row in found[name].partitions.items():
                log = known.logs.get(number)
                if log is None:
                    log = known.logs[number] = LogCopy(
                        TopicPartition(name, number), known.topic_id, self._store, self._suffix
                    )
                log.epoch = max(log.epoch, row.leader_epoch)

    def _drop(self, topic: _Topic) -> None:
        for log in topic.logs.values():
            log.abandon()
        self._topics.pop(topic.name, None)
        self._tell(f"topic {topic.name} was deleted meanwhile, and is left out")

    def _new_topic(self, name: str, topic_id: UUID) -> _Topic | None:
        try:
            settings = describe_topic_configs(self._cluster, name)
        except KafkaError as error:
            if is_gone(error):
                return None
            raise
        topic = _Topic(
            name=name,
            topic_id=topic_id,
            compacted="compact" in (settings["cleanup.policy"].value or ""),
            delete_retention_ms=int(settings["delete.retention.ms"].value or 0),
            logs={},
        )
        before = None if self._before is None else self._before.topic(name, topic_id.hex)
        if before is not None and is_complete_after(before, topic.compacted, _now_ms()):
            for each in before.partitions:
                log = LogCopy(
                    TopicPartition(name, each.partition), topic_id, self._store, self._suffix
                )
                log.go_on_behind(each)
                topic.logs[each.partition] = log
        return topic

    def _topic_backup(self, topic: _Topic) -> TopicBackup:
        return TopicBackup(
            name=topic.name,
            topic_id=topic.topic_id.hex,
            compacted=topic.compacted,
            copied_ms=self._copied_ms,
            delete_retention_ms=topic.delete_retention_ms,
            partitions=tuple(topic.logs[number].backup() for number in sorted(topic.logs)),
        )

    # --- bodies ---

    def _copy_bodies(self, number: int) -> None:
        """One pass over all logs but the coordinators'. The ends of the log of consumer groups come
        first, so that no offset lies behind the data that are copied."""
        self._refresh_topics()
        self._copied_ms = _now_ms()
        logs = [log for log in self._logs() if log.tp.topic != STATE_TOPIC]
        starts = starts_of(self._cluster, [log.tp for log in self._logs()])
        for log in self._logs():
            log.log_starts_at(starts[log.tp])
        groups = [log.tp for log in logs if log.tp.topic == GROUPS_TOPIC]
        ends = ends_of(self._cluster, groups)
        ends |= ends_of(self._cluster, [log.tp for log in logs if log.tp.topic != GROUPS_TOPIC])
        topics = [each for each in self._topics.values() if each.name != STATE_TOPIC]
        for place, topic in enumerate(topics, 1):
            self._tell(
                f"backup {self._number}, pass {number}: topic {place} of {len(topics)} "
                f"({topic.name}), {self._throttle.bytes / 1e6:.1f} MB read"
            )
            self._copy_topic(topic, ends)

    def _copy_topic(self, topic: _Topic, ends: dict[TopicPartition, int]) -> None:
        try:
            for logs in _groups(log for log in topic.logs.values() if log.tp in ends):
                self._copy_logs(logs, ends)
        except KafkaError as error:
            if not is_gone(error):
                raise
            self._drop(topic)

    def _copy_logs(self, logs: Sequence[LogCopy], ends: dict[TopicPartition, int]) -> None:
        left = list(logs)
        while left:
            ranges = {log.tp: log.wanted(ends[log.tp]) for log in left}
            reading = {tp: each for tp, each in ranges.items() if each is not None}
            by_tp = {log.tp: log for log in left}
            anew: set[TopicPartition] = set()
            for tp, records in read_batches(
                self._cluster,
                reading,
                {log.tp.topic: log.topic_id for log in left},
                throttle=self._throttle,
                on_start_moved=lambda tp, start, by_tp=by_tp: by_tp[tp].log_starts_at(start),  # type: ignore[misc]
            ):
                for header, batch in between(records, *reading[tp]):
                    if tp not in anew and not by_tp[tp].take(header, batch):
                        anew.add(tp)
            for log in left:
                if log.tp not in anew and not log.copied_to(ends[log.tp]):
                    anew.add(log.tp)
            left = [log for log in left if log.tp in anew]

    # --- the cut ---

    def _cut(self) -> BackupMoment:
        for _ in range(MOST_CUTS):
            self._refresh_topics()
            self._copy_bodies_of_new()
            known = [log.tp for log in self._logs()]
            self._tell(f"backup {self._number}: waiting for the markers of ended transactions")
            moment = self._find_moment(known)
            self._refresh_topics()
            if [log.tp for log in self._logs()] != known:
                continue
            tails = Tails(self._cluster, moment, self._throttle)
            if self._copy_tails(tails) and tails.beyond(list(self._logs())) is None:
                return moment
        raise BackupError(
            f"no consistent moment was found in {MOST_CUTS} tries, since topics or transactions "
            "come and go too fast: repeat the backup"
        )

    def _find_moment(self, known: Sequence[TopicPartition]) -> BackupMoment:
        state = self._topics.get(STATE_TOPIC)
        reader = MomentReader(
            self._cluster,
            None if state is None else state.topic_id,
            () if state is None else state.logs,
        )
        return reader.find([tp for tp in known if tp.topic != STATE_TOPIC])

    def _copy_bodies_of_new(self) -> None:
        """Partitions that came behind the last pass have no body."""
        new = [log for log in self._logs() if log.tp.topic != STATE_TOPIC and not log.position]
        starts = starts_of(self._cluster, [log.tp for log in new])
        for log in new:
            log.log_starts_at(starts[log.tp])

    def _copy_tails(self, tails: Tails) -> bool:
        """False where a topic has gone meanwhile."""
        for topic in list(self._topics.values()):
            if topic.name == STATE_TOPIC:
                continue
            try:
                for logs in _groups(topic.logs.values()):
                    tails.copy(logs)
            except KafkaError as error:
                if not is_gone(error):
                    raise
                self._drop(topic)
                return False
        return True

    def _copy_state(self, moment: BackupMoment) -> None:
        """The coordinators' logs end at the moment."""
        topic = self._topics.get(STATE_TOPIC)
        if topic is None:
            return
        ends = {log.tp: moment.ends[log.tp.partition] for log in topic.logs.values()}
        for logs in _groups(topic.logs.values()):
            self._copy_logs(logs, ends)
        for log in topic.logs.values():
            log.end_offset = ends[log.tp]

    def _write_nodes(self) -> StoredFile:
        self._tell(f"backup {self._number}: copying what ZooKeeper holds")
        nodes = self._read_nodes()
        parent = f"{TopicZNode.PARENT}/"
        kept = {
            path: data
            for path, data in nodes.items()
            if not path.startswith(parent) or path.removeprefix(parent) in self._topics
        }
        missing = [name for name in self._topics if TopicZNode.path(name) not in kept]
        if missing:
            raise BackupError(
                f"ZooKeeper does not know topic {missing[0]}: is it the cluster's own, and was the "
                "topic deleted a moment ago? Repeat the backup"
            )
        data = encode_nodes(kept)
        name = f"{catalog.ZNODES}nodes{self._suffix}.json"
        if not self._store.put_new(name, data):
            raise BackupError(f"{name} is there already: repeat the backup")
        return StoredFile(name=name, size=len(data), crc=crc32c(data))


def is_complete_after(before: TopicBackup, compacted: bool, now_ms: int) -> bool:
    """Whether what lies behind an earlier backup says all that has changed since. In a compacted
    topic that ends when tombstones may be gone which nobody has copied; half of the time is left
    for the copying, and for clocks."""
    if not (compacted or before.compacted):
        return True
    return 0 <= now_ms - before.copied_ms < before.delete_retention_ms // 2


def _groups(logs: Iterable[LogCopy]) -> Iterator[list[LogCopy]]:
    rest = iter(list(logs))
    while group := list(islice(rest, TOGETHER)):
        yield group


def _new_bytes(log: LogCopy) -> int:
    new = sum(each.size for each in log.files if log.suffix in each.name)
    return new + (0 if log.tail is None else log.tail.size)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
