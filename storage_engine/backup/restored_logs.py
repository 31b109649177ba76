"""Writes the logs of one broker from a backup, while the broker does not run.

Each batch is stored as a follower stores its leader's: at its offset, with its leader epoch, byte
for byte. A mark in each log dir says that it is being written: whoever finds the mark may remove
what is there and begin again.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

from storage_engine.backup.errors import BackupError, DamagedError
from storage_engine.backup.folder_store import sync_folder
from storage_engine.backup.manifest import BatchFile, Manifest, PartitionBackup
from storage_engine.backup.placement import Assignments
from storage_engine.backup.reading import between
from storage_engine.backup.store import BackupStore, checked_pieces
from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.ids import NO_TAIL_LOST, BrokerId, TopicPartition
from storage_engine.log.dirs.log_dir import META_FILE
from storage_engine.log.dirs.log_manager import LogManager, LogManagerSettings
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.net.event_loop_ports import SystemClock
from storage_engine.protocol.records.record_batch import LENGTH_END

MARK = ".headrace-restore"

_LENGTH_AT = 8

Tell = Callable[[str], None]


class RestoredLogs:
    """The log dirs of one broker."""

    def __init__(
        self, settings: LogManagerSettings, config_of: Callable[[str], LogConfig], tell: Tell
    ) -> None:
        """`config_of` gives the settings of a topic's logs."""
        self._settings = settings
        self._config_of = config_of
        self._tell = tell

    def check_empty(self) -> None:
        """BackupError where a log dir holds partitions that no restore has begun to write."""
        for path in self._settings.log_dirs:
            if not (path / MARK).exists() and (found := _partitions(path)):
                raise BackupError(
                    f"the log dir {path} of broker {self._settings.broker_id} holds data "
                    f"({found[0].name}): a backup is restored into an empty cluster only; give "
                    "the broker an empty log dir, or move the data away"
                )

    def write(self, store: BackupStore, manifest: Manifest, assignments: Assignments) -> int:
        """Write all partitions of the broker; return their number. After an error, the log dirs are
        empty again. `unmark` them once it is noted elsewhere that the logs are written."""
        self.check_empty()
        self._clear()
        self._mark(manifest)
        try:
            count = self._write(store, manifest, assignments)
        except BaseException:
            self._clear()
            self.unmark()
            raise
        return count

    def _write(self, store: BackupStore, manifest: Manifest, assignments: Assignments) -> int:
        own = BrokerId(self._settings.broker_id)
        manager = LogManager(self._settings, clock=SystemClock(), config_of=self._config_of)
        ends: dict[TopicPartition, int] = {}
        try:
            manager.load()
            for topic in manifest.topics:
                for partition in topic.partitions:
                    if own not in assignments[topic.name].get(partition.partition, ()):
                        continue
                    tp = TopicPartition(topic.name, partition.partition)
                    self._tell(f"broker {own}: {tp}, {len(ends)} partitions written")
                    config = self._config_of(topic.name)
                    log = manager.get_or_create(tp, config, topic_id=UUID(topic.topic_id))
                    _fill(log, store, partition)
                    ends[tp] = log.log_end_offset
            manager.checkpoint_high_watermarks(ends)
            for log_dir in manager.dirs.working:
                # These log dirs are new, but their logs are whole.
                log_dir.keep_tail_lost_epoch(NO_TAIL_LOST)
        except BaseException:
            manager.abandon()
            raise
        manager.close()
        return len(ends)

    def _mark(self, manifest: Manifest) -> None:
        for path in self._settings.log_dirs:
            path.mkdir(parents=True, exist_ok=True)
            (path / MARK).write_text(json.dumps({"backup_id": manifest.backup_id}))
            sync_folder(path)

    def unmark(self) -> None:
        """From here on nobody may remove the logs."""
        for path in self._settings.log_dirs:
            (path / MARK).unlink(missing_ok=True)

    def _clear(self) -> None:
        """Remove what a restore has written; only where its mark is."""
        for path in self._settings.log_dirs:
            if not (path / MARK).exists():
                continue
            for each in path.iterdir():
                if each.name in (MARK, META_FILE):
                    continue
                if each.is_dir():
                    shutil.rmtree(each)
                else:
                    each.unlink()


def _partitions(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    folders = (each for each in path.iterdir() if each.is_dir())
    return sorted(each for each in folders if not each.name.startswith("."))


def _fill(log: PartitionLog, store: BackupStore, partition: PartitionBackup) -> None:
    start = partition.start_offset
    if start:
        log.truncation.truncate_fully_and_start_at(start)
    for file in partition.all_files:
        for records in whole_batches(store, file):
            _append(log, records, start)
    if log.log_end_offset != partition.end_offset:
        raise DamagedError(
            f"the backup of {log.topic_partition} ends at offset {log.log_end_offset}, and should "
            f"at {partition.end_offset}: take another backup (headrace backup --list)"
        )


def _append(log: PartitionLog, records: memoryview, start: int) -> None:
    """Append whole batches, without those below the log's start."""
    first = next((batch for _, batch in between(records, start, 1 << 63)), None)
    if first is None:
        return
    skipped = _position_in(records, first)
    log.follower_appends.append(records[skipped:])


def _position_in(records: memoryview, batch: memoryview) -> int:
    """Where the first batch that counts begins: those before it are below the log's start."""
    position = 0
    base_offset = batch[:_LENGTH_AT]
    while records[position : position + _LENGTH_AT] != base_offset:
        position += LENGTH_END + _length_at(records, position)
    return position


def whole_batches(store: BackupStore, file: BatchFile) -> Iterator[memoryview]:
    """Yield the content of a file, cut between batches. CorruptRecordError where that is not
    possible; DamagedError at the end where it is not what was written."""
    rest = bytearray()
    for piece in checked_pieces(store, file):
        rest += piece
        end = _whole(rest)
        if end:
            yield memoryview(bytes(rest[:end]))
            del rest[:end]
    if rest:
        raise CorruptRecordError(f"{file.name} ends within a batch: take another backup")


def _whole(data: bytearray) -> int:
    """Where the last whole batch ends."""
    position = 0
    while position + LENGTH_END <= len(data):
        following = position + LENGTH_END + _length_at(data, position)
        if following > len(data):
            break
        position = following
    return position


def _length_at(data: "bytearray | memoryview", position: int) -> int:
    length = int.from_bytes(data[position + _LENGTH_AT : position + LENGTH_END], "big")
    if not 0 < length < 1 << 31:
        raise CorruptRecordError("a batch in the backup has no possible length: it is damaged")
    return length


def broker_list(ids: Sequence[BrokerId]) -> str:
    return ", ".join(map(str, ids))
