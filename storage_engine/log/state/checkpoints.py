"""Small text files of offsets per partition, of epochs, and of a topic's id. A file is replaced as
a whole; a damaged entry is logged and counts as missing.

    recovery-point-offset-checkpoint, replication-offset-checkpoint,
    log-start-offset-checkpoint and cleaner-offset-checkpoint (one each per log dir),
    scrub-time-checkpoint (with wall-clock milliseconds instead of offsets):
        1                                      format version
        <number of entries>
        <topic> <partition> <offset> <check>   a line per entry

    leader-epoch-checkpoint (one per partition):
        1
        <number of entries>
        <epoch> <start offset> <check>

    partition.metadata (one per partition; the format is Kafka's):
        version: 0
        topic_id: <22 characters of base64>

`check` is the CRC-32C of the line before it, as 8 hexadecimal digits. So a byte that is not as it
was written costs the value of one partition, and of an epoch file all, for epochs say something
only together.

A lost value costs work, not data: everything counts as not yet flushed (R-LOG8) or as dirty
(R-LOG10), the high watermark is learned again (R-REP10), and epochs are learned from the batches. A
log whose start is lost begins where its oldest segment does, so that records of that segment that
were deleted may be back; only the warning shows it.

The epoch file has every epoch below the recovery point; above it recovery learns them from the
batches that it checks. So neither an election nor its first batch writes a file: a failover of a
thousand partitions would write a thousand of them, on each broker.

A topic may be deleted and created again while a broker is away; without the id its old records
would be served as those of the new topic. While the id is not known, the next one from the
controller is accepted. Source: KIP-101, KIP-516, R-LOG8, R-REP8.
"""

import itertools
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID

from crc32c import crc32c

from storage_engine.core.errors import ErrorCode, KafkaError, LogBusyError
from storage_engine.core.ids import (
    TopicPartition,
    topic_id_from_text,
    topic_id_to_text,
    topic_name_problem,
)
from storage_engine.core.replication.leader_epochs import EpochStart, LeaderEpochCache
from storage_engine.core.system_errors import Reach, reach_of_file_error
from storage_engine.log.files.disk import Disk, replace_file, storage_error, storage_errors
from storage_engine.log.segments.segment_list import LogFolder
from storage_engine.protocol.records.record_batch import BatchHeader

logger = logging.getLogger(__name__)


RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"
LOG_STARTS_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSETS_FILE = "cleaner-offset-checkpoint"
SCRUB_TIMES_FILE = "scrub-time-checkpoint"
LEADER_EPOCHS_FILE = "leader-epoch-checkpoint"

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
MOST_DIGITS = 19
"""The digits of INT64_MAX; Python takes long for numbers of a million digits."""

_VERSION = "1"


class SavedOffsets(NamedTuple):
    offsets: dict[TopicPartition, int]
    is_damaged: bool
    """True when other partitions may have had offsets too."""


def read_offsets(disk: Disk, path: Path) -> SavedOffsets:
    """Return the offsets of a checkpoint file whose entries are intact; log a warning for
    others."""
    offsets: dict[TopicPartition, int] = {}
    lines, problems = _read_lines(disk, path, 3)
    for topic, partition, offset in lines:
        try:
            problem = topic_name_problem(topic)
            if problem is not None:
                raise ValueError(problem)
            place = TopicPartition(topic, _number(partition, INT32_MAX))
            offsets[place] = _number(offset, INT64_MAX)
        except ValueError as error:
            problems.append(str(error))
    for problem in problems:
        logger.warning("checkpoint damaged, read without it file=%s reason=%s", path, problem)
    return SavedOffsets(offsets, bool(problems))


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces the file; on the medium when this returns."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    _write_lines(disk, path, lines, sync=True)


def read_epochs(disk: Disk, path: Path) -> list[EpochStart]:
    """Return the entries of a leader epoch checkpoint; none, with a warning, when it is damaged."""
    lines, problems = _read_lines(disk, path, 2)
    try:
        if problems:
            raise ValueError(problems[0])
        entries = [
            EpochStart(_number(epoch, INT32_MAX), _number(start_offset, INT64_MAX))
            for epoch, start_offset in lines
        ]
        for former, latter in itertools.pairwise(entries):
            if former.epoch >= latter.epoch or former.start_offset > latter.start_offset:
                raise ValueError(f"epoch {latter.epoch} does not follow epoch {former.epoch}")
        return entries
    except ValueError as error:
        logger.warning("checkpoint ignored, it is damaged file=%s reason=%s", path, error)
        return []


def write_epochs(disk: Disk, path: Path, entries: tuple[EpochStart, ...]) -> None:
    """Replaces the file. A crash of the machine may lose it; the log's batches have the epochs."""
    _write_lines(disk, path, [f"{epoch} {start}" for epoch, start in entries], sync=False)


def _number(text: str, most: int) -> int:
    """Parse a whole number from 0 to `most` in the form that this module writes; ValueError
    otherwise."""
    if not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS or int(text) > most:
        raise ValueError(f"'{text[:30]}' is no number from 0 to {most}")
    return int(text)


def _write_lines(disk: Disk, path: Path, lines: list[str], *, sync: bool) -> None:
    checked = [f"{line} {_check(line)}" for line in lines]
    text = "\n".join([_VERSION, str(len(lines)), *checked, ""])
    replace_file(disk, path, text.encode(), sync=sync)


def _check(line: str) -> str:
    return f"{crc32c(line.encode()):08x}"


def _read_lines(disk: Disk, path: Path, fields: int) -> tuple[list[list[str]], list[str]]:
    """Return the good entries split into fields, and the problems of the others."""
    if not disk.exists(path):
        return [], []
    version, *rest = disk.read_file(path).decode("utf-8", "replace").split("\n")
    count = rest[0] if rest else ""
    lines = rest[1:-1]
    problems = []
    if not rest or rest[-1] != "":
        # The last line may only lack its end.
        lines = rest[1:]
        problems.append("it is cut off")
    if version != _VERSION:
        problems.append(f"version '{version[:20]}', expected {_VERSION}")
    good = []
    for line in lines:
        entry, space, check = line.rpartition(" ")
        if space and check == _check(entry) and entry.count(" ") == fields - 1:
            good.append(entry.split(" "))
        else:
            problems.append(f"'{line[:300]}' does not agree with its check")
    if not problems and count != str(len(good)):
        problems.append(f"{len(good)} entries, expected {count[:20]}")
    return good, problems


class LeaderEpochCheckpoint:
    """Changes `cache`, and the file with it."""

    __slots__ = ("_disk", "_folder", "cache", "unsaved", "unsynced")

    def __init__(self, folder: LogFolder, cache: LeaderEpochCache) -> None:
        self._disk = folder.disk
        self._folder = folder.path
        self.cache = cache
        self.unsaved = False
        """True when the file differs from the cache: `save` before the recovery point rises."""
        self.unsynced = True
        """True when the file's content may not be on the medium."""

    @property
    def path(self) -> Path:
        return self._folder / LEADER_EPOCHS_FILE

    def start_epoch(self, epoch: int, start_offset: int) -> None:
        """Records that a leader of `epoch` will write from `start_offset` on."""
        latest = self.cache.latest_epoch
        if epoch < latest:
            raise KafkaError(
                f"leader epoch {epoch} is older than epoch {latest} in {self.path.parent}",
                ErrorCode.FENCED_LEADER_EPOCH,
            )
        if self.cache.assign(epoch, start_offset):
            self.unsaved = True

    def replace(self, entries: tuple[EpochStart, ...]) -> None:
        """Takes the epochs of another log with the same records."""
        if entries != self.cache.entries:
            self.cache.clear()
            for epoch, start_offset in entries:
                self.cache.assign(epoch, start_offset)
            self.unsaved = True

    def folder_is_renamed(self, path: Path) -> None:
        self._folder = path

    def save(self) -> None:
        """Writes the cache to the file."""
        if self.unsaved:
            self._save()

    def note_batches(self, batches: list[tuple[int, BatchHeader]]) -> None:
        """Records batches that a follower is about to append, with the epochs of their leaders."""
        for _, header in batches:
            self.note_batch(header.partition_leader_epoch, header.base_offset)

    def note_batch(self, epoch: int, base_offset: int) -> None:
        """Records the first of batches that a follower is about to append, all of this epoch."""
        if epoch >= 0 and epoch != self.cache.latest_epoch:
            self.unsaved |= self.cache.assign(epoch, base_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        if self.cache.truncate_from_end(end_offset):
            self._save_if_it_can_be()

    def truncate_from_start(self, start_offset: int) -> None:
        if self.cache.truncate_from_start(start_offset):
            self._save_if_it_can_be()

    def _save_if_it_can_be(self) -> None:
        """Saves epochs outside the log, which opening the log would find out as well; an error is
        ignored."""
        with suppress(LogBusyError):
            self._save()

    def _save(self) -> None:
        self.unsynced = self.unsaved = True
        with storage_errors("write", self.path, unchanged=True):
            write_epochs(self._disk, self.path, self.cache.entries)
        self.unsaved = False


PARTITION_METADATA_FILE = "partition.metadata"

_VERSION_LINE = "version: 0"
_TOPIC_ID = "topic_id: "


def read_topic_id(disk: Disk, directory: Path) -> UUID | None:
    """Return the topic's id; None when the folder does not have it. LogStorageError when it can't
    be read."""
    path = directory / PARTITION_METADATA_FILE
    try:
        content = disk.read_file(path) if disk.exists(path) else None
    except OSError as error:
        raise storage_error("read", path, error) from error
    if content is None:
        return None
    try:
        version, topic_id, end = content.decode("utf-8").split("\n")
        if version != _VERSION_LINE or not topic_id.startswith(_TOPIC_ID) or end:
            raise ValueError("it is not of the form 'version: 0', 'topic_id: <id>'")
        return topic_id_from_text(topic_id.removeprefix(_TOPIC_ID))
    except ValueError as error:
        logger.warning("topic id ignored, it is damaged file=%s reason=%s", path, error)
        return None


def write_topic_id(disk: Disk, directory: Path, topic_id: UUID, *, sync: bool = False) -> None:
    """Writes the id. It survives a crash of the process, and one of the machine with `sync`; else
    the log's first flush syncs it. Without room the write is left to the next time that the replica
    begins. LogStorageError when the folder can't be written at all.
    """
    path = directory / PARTITION_METADATA_FILE
    content = f"{_VERSION_LINE}\n{_TOPIC_ID}{topic_id_to_text(topic_id)}\n"
    try:
        replace_file(disk, path, content.encode(), sync=sync)
    except OSError as error:
        if reach_of_file_error(error) is not Reach.ROOM:
            raise storage_error("write", path, error) from error
        logger.warning("no room for the topic id file=%s", path)


class LogCheckpoints(Protocol):
    def write(self) -> None:
        """Brings the log's recovery point, start offset and first dirty offset to the medium.
        OSError when that fails."""
        ...

    def saved_recovery_point(self) -> int | None:
        """Return the recovery point that is on the medium; None when no file holds it."""
        ...


class NoCheckpoints:
    """The checkpoints of a log that was opened without a log dir: its offsets are kept nowhere."""

    def write(self) -> None: ...

    def saved_recovery_point(self) -> int | None:
        return None
