"""Checks that a backup is whole, and that a cluster holds what a backup has."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from storage_engine.backup.errors import BackupError, DamagedError
from storage_engine.backup.manifest import BatchFile, Manifest, PartitionBackup, TopicBackup
from storage_engine.backup.reading import Throttle, between, read_batches
from storage_engine.backup.restored_logs import Tell, whole_batches
from storage_engine.backup.restorer import read_nodes_of
from storage_engine.backup.store import BackupStore
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import BatchHeader, crc_matches, iter_headers


@dataclass(slots=True, kw_only=True)
class TopicReport:
    """The findings about one topic; its fields are the columns of the command's table."""

    topic: str
    partitions: int
    batches: int = 0
    missing: int = 0
    """Batches of the backup that the cluster has not."""
    compacted: int = 0
    """Batches that a compacted topic has not, or has otherwise, which is no damage."""
    different: int = 0
    """Batches that are other ones in the cluster."""
    problem: str | None = None

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.different or self.problem)


def check_backup(store: BackupStore, manifest: Manifest, tell: Tell) -> list[TopicReport]:
    """Read every file of the backup: its checksum, those of the batches, and their offsets."""
    read_nodes_of(store, manifest)
    reports = []
    for topic in manifest.topics:
        report = TopicReport(topic=topic.name, partitions=len(topic.partitions))
        tell(f"checking {topic.name}")
        try:
            for partition in topic.partitions:
                for _ in batches_of(store, topic, partition):
                    report.batches += 1
        except DamagedError as error:
            report.problem = str(error)
        reports.append(report)
    return reports


def batches_of(
    store: BackupStore, topic: TopicBackup, partition: PartitionBackup
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a partition. DamagedError where they are not what was written."""
    next_offset = 0
    for file in partition.all_files:
        for header, batch in _batches_in(store, file):
            where = f"{topic.name}-{partition.partition}"
            if header.base_offset < next_offset or not crc_matches(batch, 0, len(batch)):
                raise DamagedError(
                    f"{file.name} is damaged: the batch at offset {header.base_offset} of {where} "
                    "is not what was written; take another backup (headrace backup --list)"
                )
            next_offset = header.next_offset
            if header.next_offset > partition.start_offset:
                yield header, batch


def _batches_in(store: BackupStore, file: BatchFile) -> Iterator[tuple[BatchHeader, memoryview]]:
    try:
        for records in whole_batches(store, file):
            for position, header in iter_headers(records):
                yield header, records[position : position + header.size_in_bytes]
    except DamagedError:
        raise
    except HeadraceError as error:
        raise DamagedError(f"{file.name} is damaged: {error}") from None


def compare(
    cluster: Cluster, store: BackupStore, manifest: Manifest, tell: Tell
) -> list[TopicReport]:
    """Compare every batch of the backup with the cluster's."""
    found = cluster.metadata().topics
    reports = []
    for topic in manifest.topics:
        report = TopicReport(topic=topic.name, partitions=len(topic.partitions))
        reports.append(report)
        tell(f"comparing {topic.name}")
        if topic.name not in found:
            report.problem = "the cluster has no topic of that name"
        elif found[topic.name].topic_id != UUID(topic.topic_id):
            report.problem = "the cluster's topic of that name is another one"
        else:
            try:
                for partition in topic.partitions:
                    _compare(cluster, store, topic, partition, report)
            except (DamagedError, BackupError) as error:
                report.problem = str(error)
    return reports


def _compare(
    cluster: Cluster,
    store: BackupStore,
    topic: TopicBackup,
    partition: PartitionBackup,
    report: TopicReport,
) -> None:
    theirs = _cluster_batches(cluster, topic, partition)
    present = next(theirs, None)
    for header, _ in batches_of(store, topic, partition):
        report.batches += 1
        while present is not None and present.base_offset < header.base_offset:
            # It has a batch that the backup has not.
            report.different += 1
            present = next(theirs, None)
        if present is None or present.base_offset > header.base_offset:
            if topic.compacted:
                report.compacted += 1
            else:
                report.missing += 1
            continue
        if (present.crc, present.partition_leader_epoch) != (
            header.crc,
            header.partition_leader_epoch,
        ):
            if topic.compacted:
                report.compacted += 1
            else:
                report.different += 1
        present = next(theirs, None)
    if present is not None:
        report.different += 1 + sum(1 for _ in theirs)


def _cluster_batches(
    cluster: Cluster, topic: TopicBackup, partition: PartitionBackup
) -> Iterator[BatchHeader]:
    """Yield the headers of the cluster's batches, below the end of the backup."""
    tp = TopicPartition(topic.name, partition.partition)
    start, end = partition.start_offset, partition.end_offset
    for _, records in read_batches(
        cluster,
        {tp: (start, end)},
        {topic.name: UUID(topic.topic_id)},
        throttle=Throttle(None),
        on_start_moved=lambda tp, start: None,
    ):
        for header, _ in between(records, start, end):
            yield header
