"""Small text files of offsets per partition, or of epochs. Their one rule: a file is replaced as a
whole, and a bad one counts as empty.

    recovery-point-offset-checkpoint, replication-offset-checkpoint,
    log-start-offset-checkpoint and cleaner-offset-checkpoint (one each per data folder),
    scrub-time-checkpoint (with wall-clock milliseconds instead of offsets):
        0                                format version
        <number of entries>
        <topic> <partition> <offset>     a line per entry

    leader-epoch-checkpoint (one per partition):
        0
        <number of entries>
        <epoch> <start offset>

The formats are Kafka's. A lost value costs work, not data: everything counts as not yet flushed
(R-LOG8) or as dirty (R-LOG10), and the high watermark is learned again (R-REP10).
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from storage_engine.core.ids import TopicPartition
from storage_engine.core.leader_epochs import EpochStart
from storage_engine.log.disk import Disk, replace_file

RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"
LOG_STARTS_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSETS_FILE = "cleaner-offset-checkpoint"
SCRUB_TIMES_FILE = "scrub-time-checkpoint"
LEADER_EPOCHS_FILE = "leader-epoch-checkpoint"

_VERSION = "0"

logger = logging.getLogger(__name__)


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint file; none, with a warning, when it is damaged."""
    offsets: dict[TopicPartition, int] = {}
    try:
        for topic, partition, offset in _read_lines(disk, path, 3):
            if int(offset) < 0 or int(partition) < 0:
                raise ValueError("a negative number")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
    except ValueError as error:
        logger.warning("checkpoint ignored, it is damaged file=%s reason=%s", path, error)
        return {}
    return offsets


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces the file; on the medium when this returns."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    _write_lines(disk, path, lines, sync=True)


def read_epochs(disk: Disk, path: Path) -> list[EpochStart]:
    """The entries of a leader epoch checkpoint; none, with a warning, when it is damaged."""
    try:
        return [
            EpochStart(int(epoch), int(start_offset))
            for epoch, start_offset in _read_lines(disk, path, 2)
        ]
    except ValueError as error:
        logger.warning("checkpoint ignored, it is damaged file=%s reason=%s", path, error)
        return []


def write_epochs(disk: Disk, path: Path, entries: tuple[EpochStart, ...], *, sync: bool) -> None:
    """Replaces the file. Without `sync` a crash of the machine may lose it, and the log's batches
    tell it again.
    """
    _write_lines(disk, path, [f"{epoch} {start}" for epoch, start in entries], sync=sync)


def _write_lines(disk: Disk, path: Path, lines: list[str], *, sync: bool) -> None:
    text = "\n".join([_VERSION, str(len(lines)), *lines, ""])
    replace_file(disk, path, text.encode(), sync=sync)


def _read_lines(disk: Disk, path: Path, fields: int) -> list[list[str]]:
    """The entries split into fields; ValueError when anything is not as written."""
    if not disk.exists(path):
        return []
    lines = disk.read_file(path).decode("utf-8").split("\n")
    if lines[0] != _VERSION:
        raise ValueError(f"version '{lines[0][:20]}', expected {_VERSION}")
    if len(lines) < 2 or lines[-1] != "":
        raise ValueError("it is cut off")
    entries = [line.split(" ") for line in lines[2:-1]]
    if int(lines[1]) != len(entries):
        raise ValueError(f"{len(entries)} entries, expected {lines[1][:20]}")
    if any(len(entry) != fields for entry in entries):
        raise ValueError(f"an entry that has not {fields} fields")
    return entries
