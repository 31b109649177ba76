"""Small text files of offsets per partition, or of epochs. A file is replaced as a whole; a damaged
entry is logged and counts as missing.

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

`check` is the CRC-32C of the line before it, as 8 hexadecimal digits. So a byte that is not as it
was written costs the value of one partition, and of an epoch file all, for epochs say something
only together.

A lost value costs work, not data: everything counts as not yet flushed (R-LOG8) or as dirty
(R-LOG10), the high watermark is learned again (R-REP10), and epochs are learned from the batches. A
log whose start is lost begins where its oldest segment does, so that records of that segment that
were deleted may be back; only the warning shows it.
"""

import itertools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from storage_engine.core.ids import TopicPartition, topic_name_problem
from storage_engine.core.replication.leader_epochs import EpochStart
from storage_engine.log.files.disk import Disk, replace_file

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

logger = logging.getLogger(__name__)


class SavedOffsets(NamedTuple):
    """The offsets of a checkpoint file."""

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
    """Replaces the file. A crash of the machine may lose it; the log's batches hold the same."""
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
