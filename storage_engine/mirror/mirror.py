"""Copies topics of some clusters into another, each record once.

    source 1 ─┐                          ┌─ records or columns, as batches of the same content
    source 2 ─┼─ fetch, read_committed ──┤                              one transaction
    ...      ─┘                          └─ how far each partition is   of the target

Records and positions are committed together. A mirror's name is its transactional id: a new process
takes the id over from the previous one, and only then reads the positions, so that no record is
copied twice. Any error of the target ends the mirror; started again, it continues at its last
commit. A source may be away for a while. Source: R-CLI6; KIP-98, KIP-447. It is not thread-safe.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from storage_engine.client.admin.topics import (
    BROKER_DEFAULT,
    NewTopic,
    create_partitions,
    create_topics,
    describe_topic_configs,
)
from storage_engine.client.closing import Closing
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.client.producer.transactions import ProducerTransactions
from storage_engine.core.errors import ConfigError, ErrorCode, HeadraceError, KafkaError
from storage_engine.core.ids import (
    TopicPartition,
    topic_id_from_text,
    topic_id_to_text,
    topic_name_problem,
)
from storage_engine.core.typed.topic_schema import UnknownSchemaVersionError
from storage_engine.mirror.offsets import DeliveredBatch, runs_of
from storage_engine.mirror.plan import (
    COMPACTED,
    PROGRESS_PREFIX,
    Plan,
    TopicSelection,
    check_keeps_times,
    copied_settings,
    missing_partitions,
)
from storage_engine.mirror.progress import Copy, MirrorProgress, Moved, Row, TopicIds
from storage_engine.mirror.schemas import MirroredSchemas
from storage_engine.mirror.source import (
    READ_COMMITTED,
    MirrorSource,
    Tell,
    is_gone,
)
from storage_engine.net.deadline import monotonic_ms
from storage_engine.protocol.records.copied_batches import CopiedBatch, Span, copied_batches
from storage_engine.protocol.records.record_decoder import iter_decoded
from storage_engine.protocol.records.record_encoder import iter_encoded

REFRESH_MS = 5_000
"""Between two looks for new topics and partitions, before which the transaction ends."""

TRANSACTION_BYTES = 64 << 20
"""A transaction ends when it has so many, if it has not by time."""

_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""The errors of a transaction that somebody else has ended."""


class MirrorFencedError(HeadraceError):
    """Another mirror of the name is running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    name: str
    """The name of the mirror. It identifies the mirror's position in the target, and only one
    mirror of a name runs at a time."""
    selection: TopicSelection
    replication_factor: int = BROKER_DEFAULT
    """The replication factor of the topics that it creates."""
    commit_interval_ms: int = 1000
    """The longest that a record waits for its transaction to end; not above REFRESH_MS."""
    transaction_timeout_ms: int = 60_000
    """A killed mirror holds up readers of its target for so long, unless it is started again."""


@dataclass(slots=True)
class _Pending:
    """The part of a partition that the open transaction has copied."""

    next_offset: int
    delivered: list[DeliveredBatch] = field(default_factory=list)


class TopicLag(NamedTuple):
    """The progress of the copy of a topic."""

    source: str
    topic: str
    target: str
    partitions: int
    copied: int
    """Records, committed, since this mirror was started."""
    lag: int
    """Offsets between what is committed in the target and what can be read in the source."""


class Mirror(Closing):
    """One process's work; `start` it, then `step` again and again, `close` it in the end."""

    def __init__(
        self, target: Cluster, sources: Mapping[str, Cluster], config: MirrorConfig, report: Tell
    ) -> None:
        progress_topic = PROGRESS_PREFIX + config.name
        if (problem := topic_name_problem(progress_topic)) is not None:
            raise ConfigError(f"'{config.name}' can't be the name of a mirror: {problem}")
        self.config = config
        self.progress = MirrorProgress()
        self._target = target
        self._report = report
        self._sources = {name: MirrorSource(name, each, report) for name, each in sources.items()}
        self._schemas = MirroredSchemas(target, sources, report)
        self._progress_partition = TopicPartition(progress_topic, 0)
        self._transactions = ProducerTransactions(
            target,
            f"headrace-mirror-{config.name}",
            timeout_ms=config.transaction_timeout_ms,
            deadline_ms=target.deadline_ms,
        )
        self._copies: dict[tuple[str, TopicPartition], Copy] = {}
        self._ids: dict[Copy, TopicIds] = {}
        self._writer: BatchWriter | None = None
        self._pending: dict[Copy, _Pending] = {}
        self._pending_bytes = 0
        self._begun_ms = 0
        self._refreshed_ms = 0
        self._copied: dict[Copy, int] = {}
        self._checked: set[str] = set()
        self._is_fenced = False

    def start(self) -> None:
        """Take over from a mirror of the same name, and find out how far it was."""
        self._check_apart()
        topic = self._progress_partition.topic
        if topic not in self._target.metadata([topic]).topics:
            new = NewTopic(
                name=topic,
                partitions=1,
                replication_factor=self.config.replication_factor,
                configs=COMPACTED,
            )
            create_topics(self._target, [new])
        self._transactions.init()
        self.progress.load(self._read_progress())
        self.refresh()

    def _check_apart(self) -> None:
        """A cluster is no mirror of itself, unless topics get other names."""
        target = self._target.metadata([]).cluster_id
        same_names = self.config.selection.keeps_names
        for source in self._sources.values():
            theirs = source.cluster.metadata([]).cluster_id
            if same_names and theirs is not None and theirs == target:
                raise ConfigError(
                    f"{source.name} and the target are one cluster: topics would be copied to "
                    "themselves; give another cluster, or --target-topic 'copy.{topic}'"
                )

    def _read_progress(self) -> Iterator[Row]:
        tp = self._progress_partition
        start = self._target.list_offsets({tp: EARLIEST})[tp]
        end = self._target.list_offsets({tp: LATEST}, isolation=READ_COMMITTED)[tp]
        if start >= end:
            return
        reader = BatchFetcher(self._target, {tp: (start, end)}, isolation=READ_COMMITTED)
        for fetched in reader.read():
            for records in iter_decoded(fetched.committed(), start_offset=start):
                yield from zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True)

    # Topics.

    def refresh(self) -> None:
        """Look for new topics and partitions in the sources, and make them in the target."""
        self.commit()
        self._refreshed_ms = monotonic_ms()
        found = {name: source.topics() for name, source in self._sources.items()}
        plan = Plan(self.config.selection, found)
        wanted = {target: found[source][topic][1] for (source, topic), target in plan.names.items()}
        ids = self._make_topics(plan, wanted)
        copies = {}
        known_ids = {}
        for (source, topic), target in plan.names.items():
            source_id, count = found[source][topic]
            for number in range(count):
                tp = TopicPartition(topic, number)
                copy = Copy(source, tp, TopicPartition(target, number))
                copies[source, tp] = copy
                known_ids[copy] = TopicIds(
                    topic_id_to_text(source_id), topic_id_to_text(ids[target])
                )
        before, self._ids, self._copies = self._ids, known_ids, copies
        self._schemas.refresh(known_ids)
        for name in self._sources:
            self._read_on(name, before)

    def _make_topics(self, plan: Plan, wanted: Mapping[str, int]) -> dict[str, UUID]:
        """Create the topics and partitions that the target lacks; return all topics' ids."""
        view = self._target.metadata(wanted)
        present = {name: len(topic.partitions) for name, topic in view.topics.items()}
        create, grow = missing_partitions(wanted, present)
        if create:
            new = []
            for (source, topic), target in plan.names.items():
                if target in create:
                    settings = describe_topic_configs(self._sources[source].cluster, topic)
                    new.append(
                        NewTopic(
                            name=target,
                            partitions=create[target],
                            replication_factor=self.config.replication_factor,
                            configs=self._schemas.settings_for_target(
                                target, copied_settings(settings)
                            ),
                        )
                    )
            create_topics(self._target, new)
        if grow:
            create_partitions(self._target, grow)
        if create or grow:
            view = self._target.metadata(wanted)
        for name in wanted:
            if name not in view.topics:
                raise self._target.unknown(TopicPartition(name, 0))
            if name not in self._checked:
                check_keeps_times(name, describe_topic_configs(self._target, name))
                self._checked.add(name)
        return {name: topic.topic_id for name, topic in view.topics.items()}

    def _read_on(self, name: str, before: Mapping[Copy, TopicIds]) -> None:
        """Have the source read from where the last commit was. `before`: what it read until now."""
        source = self._sources[name]
        copies = [copy for copy in self._copies.values() if copy.source == name]
        new = [copy for copy in copies if self.progress.of(copy, self._ids[copy]) is None]
        starts = source.starts(copy.tp for copy in new)
        for copy in new:
            self.progress.begin(copy, self._ids[copy], starts[copy.tp])
        positions = {copy.tp: self._committed(copy) for copy in copies}
        if before != self._ids or positions != source.positions:
            ids = {copy.tp.topic: topic_id_from_text(self._ids[copy].source) for copy in copies}
            typed = {c.tp.topic for c in copies if self._schemas.target_of(c) is not None}
            source.read(positions, ids, typed)

    # Records.

    def step(self, wait_ms: int, *, commits: bool = False) -> bool:
        """Copy what has come within `wait_ms`; whether anything has. Commits when it is time, or
        `commits` says so: for a caller who goes away for longer than a transaction may be open."""
        try:
            return self._step(wait_ms, commits=commits)
        except KafkaError as error:
            if error.code in _FENCED:
                self._is_fenced = True
                raise MirrorFencedError(
                    f"another mirror of the name '{self.config.name}' has taken over, or this one "
                    f"stood still for {self.config.transaction_timeout_ms} ms; where it is the "
                    "only one, start it again"
                ) from error
            raise

    def _step(self, wait_ms: int, *, commits: bool) -> bool:
        if monotonic_ms() - self._refreshed_ms >= REFRESH_MS:
            self.refresh()
        came = False
        for source in self._sources.values():
            try:
                found = source.poll(0 if came else wait_ms // len(self._sources))
            except KafkaError as error:
                if not is_gone(error):
                    raise
                self.refresh()
                continue
            # Before the records behind them, which may have come in the same poll.
            for tp, offset in source.jumps().items():
                self._moved(self._copies[source.name, tp], offset)
            for fetched in found:
                self._take(source, fetched)
                came = True
        if self._writer is not None:
            self._writer.poll(0)
            age_ms = monotonic_ms() - self._begun_ms
            full = self._pending_bytes >= TRANSACTION_BYTES
            if commits or full or age_ms >= self.config.commit_interval_ms:
                self.commit()
        return came

    def _take(self, source: MirrorSource, fetched: FetchedBatches) -> None:
        copy = self._copies[source.name, fetched.tp]
        pending = self._moved(copy, fetched.next_offset)
        assert self._writer is not None
        for batch, spans in self._copied_batches(copy, fetched):
            self._pending_bytes += len(batch)
            self._writer.append(copy.target, batch, done=partial(_delivered, pending, spans))

    def _copied_batches(self, copy: Copy, fetched: FetchedBatches) -> list[CopiedBatch]:
        """All batches of an answer, once the target has the versions of the schema that they
        need."""
        while True:
            try:
                return list(
                    copied_batches(
                        fetched.committed(),
                        start_offset=fetched.start_offset,
                        typed=self._schemas.target_of(copy),
                    )
                )
            except UnknownSchemaVersionError:
                self._schemas.bring_later(copy)

    def _moved(self, copy: Copy, next_offset: int) -> _Pending:
        """The open transaction brings the partition there."""
        if self._writer is None:
            self._transactions.begin()
            self._writer = BatchWriter(self._target, transaction=self._transactions)
            self._begun_ms = monotonic_ms()
        pending = self._pending.setdefault(copy, _Pending(next_offset))
        pending.next_offset = next_offset
        return pending

    def commit(self) -> None:
        """End the transaction, with the positions in it."""
        if self._writer is None:
            return
        self._writer.flush()
        moved = {}
        for copy, pending in self._pending.items():
            target_end = self.progress.target_end(copy)
            moved[copy] = Moved(
                pending.next_offset, runs_of(pending.delivered, target_end=target_end)
            )
        keys, values = zip(*self.progress.rows(moved), strict=True)
        for batch in iter_encoded(pa.array(values, pa.binary()), pa.array(keys, pa.binary())):
            self._writer.append(self._progress_partition, batch)
        self._writer.close()
        self._transactions.end(commits=True)
        self.progress.committed(moved)
        for copy, (_, runs) in moved.items():
            count = sum(run.records for run in runs)
            self._copied[copy] = self._copied.get(copy, 0) + count
        self._writer = None
        self._pending = {}
        self._pending_bytes = 0

    # What it tells.

    @property
    def skipped(self) -> int:
        """Offsets deleted in the sources before they were copied."""
        return sum(source.skipped for source in self._sources.values())

    def copy_of(self, source: str, tp: TopicPartition) -> Copy | None:
        """Return the copy of a source's partition; None for one that is not copied."""
        return self._copies.get((source, tp))

    def ends(self) -> dict[Copy, int]:
        """Return the present ends of the sources' partitions."""
        return self._by_copy({name: source.ends() for name, source in self._sources.items()})

    def _by_copy(self, ends: Mapping[str, Mapping[TopicPartition, int]]) -> dict[Copy, int]:
        return {
            self._copies[name, tp]: end for name, each in ends.items() for tp, end in each.items()
        }

    def reaches(self, ends: Mapping[Copy, int]) -> bool:
        """Whether all below `ends` is committed in the target, but for what is no more copied."""
        return all(
            self._committed(copy) >= end
            for copy, end in ends.items()
            if self._copies.get((copy.source, copy.tp)) == copy
        )

    def lags(self) -> list[TopicLag]:
        """Return the lags by source and topic."""
        rows: dict[tuple[str, str, str], list[int]] = {}
        ends = {name: source.known_ends() for name, source in self._sources.items()}
        for copy, end in self._by_copy(ends).items():
            row = rows.setdefault((copy.source, copy.tp.topic, copy.target.topic), [0, 0, 0])
            row[0] += 1
            row[1] += self._copied.get(copy, 0)
            row[2] += max(0, end - self._committed(copy))
        return [TopicLag(*names, *numbers) for names, numbers in sorted(rows.items())]

    def _committed(self, copy: Copy) -> int:
        known = self.progress.of(copy, self._ids[copy])
        assert known is not None
        return known.next_offset

    def close(self) -> None:
        """Give up what is not committed, so that nobody waits for it, and all connections."""
        for source in self._sources.values():
            source.close()
        if self._writer is None:
            return
        self._writer.abandon()
        self._writer = None
        if self._is_fenced:
            return
        try:
            self._transactions.end(commits=False)
        except HeadraceError as error:
            self._report(f"what was not committed ends with its time limit: {error}")


def _delivered(
    pending: _Pending, spans: tuple[Span, ...], base_offset: int, error: HeadraceError | None
) -> None:
    assert error is None, "a batch of a transaction does not fail alone"
    pending.delivered.append(DeliveredBatch(base_offset, spans))
