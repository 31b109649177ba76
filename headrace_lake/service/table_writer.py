"""The work of threads for one table: open it, write files, commit them.

How far a table is, and whether it may be written, are decided by `protocol` from what the table and
the brokers say; here is the order in which they are asked.
"""

import contextlib
import threading
import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from headrace_lake.delta.batch_commits import commit_batch
from headrace_lake.delta.data_files import DataFile, RowFiles
from headrace_lake.delta.log_reading import has_log
from headrace_lake.delta.store import StoreError, TableStore
from headrace_lake.delta.table import LakeTable, LakeTopic
from headrace_lake.delta.upkeep import TableUpkeep, UpkeepSettings
from headrace_lake.lake_settings import TableSettings
from headrace_lake.protocol.attempts import AttemptDecision, TableBatch
from headrace_lake.protocol.columns import LakeShape, opaque_shape, typed_shape
from headrace_lake.protocol.progress import LakeProgress
from headrace_lake.protocol.resuming import LogAnswer, resume
from headrace_lake.protocol.stops import StopKind, TableStoppedError
from headrace_lake.reading.lake_reader import Position
from headrace_lake.reading.log_facts import log_facts
from headrace_lake.reading.rows import TopicRows, rows_of
from headrace_lake.reading.shaped import shaped
from headrace_lake.service.brokers import Brokers
from headrace_lake.service.table_task import CommittedBatch, OpenedTable, Overtaken, Stopped
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.retry import pause_ms
from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import NO_EPOCH, LeaderEpoch, TopicPartition
from storage_engine.net.deadline import monotonic_ms, sleep_ms

ENCODERS = threading.BoundedSemaphore(2)
"""So many tables encode rows at a time: each takes several times the memory of its rows."""

ATTEMPTS = 3
"""The attempts of a commit of which the store does not tell what became; then the table is opened
anew."""


FIRST_SWEEP_MS, SWEEP_INTERVAL_MS = 3_600_000, 86_400_000
"""After the start, and then between two: files that no commit names are removed."""


class TableWriter:
    """See `table_task.TableWork`. Errors of the store and of brokers are raised."""

    def __init__(
        self, settings: TableSettings, store_options: Mapping[str, str], brokers: Brokers
    ) -> None:
        self._settings = settings
        self._store_options = store_options
        self._brokers = brokers
        # A table that is let go of is dropped beside the last work for it.
        self._lock = threading.Lock()
        self._store: TableStore | None = None
        self._table: LakeTable | None = None
        self._shape: LakeShape | None = None
        self._progress: dict[int, LakeProgress] = {}
        self._files: RowFiles | None = None
        self._base_version = -1
        self._rows = 0
        self._topic: LakeTopic | None = None
        self._upkeep: TableUpkeep | None = None
        self._sweep_at_ms = monotonic_ms() + FIRST_SWEEP_MS

    def open(
        self, partitions: frozenset[TopicPartition], seen: FetchedBatches | None
    ) -> OpenedTable | Stopped:
        try:
            with self._lock:
                return self._open(partitions, seen)
        except _STOPS as error:
            return Stopped(line=str(error))

    def _open(
        self, partitions: frozenset[TopicPartition], seen: FetchedBatches | None
    ) -> OpenedTable:
        self._abandon()
        topic = self._settings.topic
        with self._brokers.lent() as cluster:
            rows = rows_of(cluster, topic, seen=seen)
        shape = shape_of(rows, self._settings.partition_by)
        self._upkeep = None
        self._topic = LakeTopic(name=rows.topic, topic_id=rows.topic_id)
        table = self._opened(self._topic, shape)
        table.grow(shape)
        self._progress = table.progress(tp.partition for tp in partitions)
        answers = log_answers(self._brokers, partitions, self._progress)
        positions = {
            tp: self._position(tp, rows, answer, accepts_gaps=table.accepts_gaps)
            for tp, answer in answers.items()
        }
        self._table, self._shape = table, shape
        return OpenedTable(rows=rows, positions=positions)

    def _opened(self, topic: LakeTopic, shape: LakeShape) -> LakeTable:
        if self._store is None:
            store = TableStore(self._settings.location, self._store_options)
            store.prove_conditional_writes()
            self._store = store
        elif self._table is not None and not has_log(self._store):
            raise TableStoppedError(
                StopKind.FOREIGN_CHANGE,
                f"the table of {topic.name} at {self._settings.location} was dropped: start the "
                "lake again to write it anew, or give the topic another location",
            )
        return LakeTable.open(self._store, topic, shape)

    def _position(
        self, tp: TopicPartition, rows: TopicRows, answer: LogAnswer, *, accepts_gaps: bool
    ) -> Position:
        known = self._progress.get(tp.partition)
        found = resume(str(tp), rows.topic_id, known, answer, accepts_gaps=accepts_gaps)
        return Position(found.end_offset, found.leader_epoch)

    def write(self, batches: list[pa.RecordBatch]) -> int:
        with self._lock:
            self._add(batches)
            return 0 if self._files is None else self._files.written_bytes

    def _add(self, batches: list[pa.RecordBatch]) -> None:
        if not batches:
            return
        assert self._store is not None
        assert self._table is not None
        assert self._shape is not None
        if self._files is None:
            self._base_version = self._table.version
            self._files = RowFiles(
                self._store,
                self._shape.row_schema,
                self._shape.partition_by,
                order=self._base_version + 1,
                target_bytes=self._settings.file_bytes,
            )
        with ENCODERS:
            rows = shaped(batches, self._shape.row_schema)
            self._rows += rows.num_rows
            self._files.write(rows)
            # Row groups of a table are bounded by the memory of all tables.
            self._files.flush()

    def commit(
        self, batches: list[pa.RecordBatch], positions: Mapping[TopicPartition, Position]
    ) -> CommittedBatch | Overtaken | Stopped:
        try:
            with self._lock:
                self._add(batches)
                return self._commit(positions)
        except _STOPS as error:
            return Stopped(line=str(error))

    def _commit(self, positions: Mapping[TopicPartition, Position]) -> CommittedBatch | Overtaken:
        assert self._table is not None
        table, files = self._table, self._files
        base_version = table.version if files is None else self._base_version
        ends = {
            tp.partition: LakeProgress(
                end_offset=each.offset, leader_epoch=LeaderEpoch(each.leader_epoch)
            )
            for tp, each in positions.items()
        }
        batch = TableBatch(
            commit_id=uuid.uuid4().hex,
            base_version=base_version,
            starts={partition: self._progress.get(partition) for partition in ends},
            ends=ends,
        )
        written = [] if files is None else files.finish()
        # From here on a commit may name them.
        self._files = None
        decision = self._decided(batch, written)
        if decision is AttemptDecision.COMMITTED:
            self._progress |= ends
            rows, self._rows = self._rows, 0
            return CommittedBatch(positions=positions, rows=rows)
        if files is not None:
            files.abandon()
        return Overtaken(line=_OVERTAKEN[decision])

    def _decided(self, batch: TableBatch, files: Sequence[DataFile]) -> AttemptDecision:
        """Return what became of the batch. StoreError leaves it open: the table tells when it is
        opened anew."""
        assert self._table is not None
        for attempt in range(ATTEMPTS - 1):
            try:
                return commit_batch(self._table, batch, files)
            except StoreError:
                sleep_ms(pause_ms(attempt))
        return commit_batch(self._table, batch, files)

    def tend(self) -> None:
        if self._upkeep is None:
            assert self._store is not None
            assert self._topic is not None
            assert self._shape is not None
            # A loaded table of its own, so that a rewrite that fails leaves that of commits alone.
            self._upkeep = TableUpkeep(
                LakeTable.open(self._store, self._topic, self._shape),
                UpkeepSettings(target_bytes=self._settings.file_bytes),
            )
        self._upkeep.tidy()
        now_ms = monotonic_ms()
        if now_ms >= self._sweep_at_ms:
            self._sweep_at_ms = now_ms + SWEEP_INTERVAL_MS
            self._upkeep.sweep()

    def drop(self) -> None:
        with self._lock:
            self._abandon()

    def _abandon(self) -> None:
        files, self._files, self._rows = self._files, None, 0
        if files is not None:
            with contextlib.suppress(StoreError):
                # A sweep removes what is left.
                files.abandon()


_STOPS = (TableStoppedError, ConfigError)
"""Trying again at once does not help against these."""

_OVERTAKEN = {
    AttemptDecision.FENCED: "another instance has written these partitions; they are read again "
    "from where the table is",
    AttemptDecision.WRITE_ANEW: "files may have been swept before their commit; they are written "
    "again",
}


def shape_of(rows: TopicRows, partition_by: tuple[str, ...]) -> LakeShape:
    """The columns of a topic's table. TableStoppedError for those that it can't have."""
    if rows.topic_schema is None:
        return opaque_shape(rows.topic, partition_by)
    return typed_shape(rows.topic, rows.topic_schema, partition_by)


def log_answers(
    brokers: Brokers,
    partitions: frozenset[TopicPartition],
    progress: Mapping[int, LakeProgress],
) -> dict[TopicPartition, LogAnswer]:
    """Return what leaders say of partitions of one topic whose progress is known."""
    epochs = {
        tp: progress[tp.partition].leader_epoch if tp.partition in progress else NO_EPOCH
        for tp in partitions
    }
    with brokers.lent() as cluster:
        facts = log_facts(cluster, {tp: int(epoch) for tp, epoch in epochs.items()})
        cluster.refresh({tp.topic for tp in partitions})
        ids = {tp: cluster.topic(tp.topic).topic_id for tp in partitions}
    return {
        tp: LogAnswer(
            topic_id=ids[tp],
            start_offset=found.start_offset,
            end_offset=found.end_offset,
            epoch_end=found.epoch_end,
        )
        for tp, found in facts.items()
    }
