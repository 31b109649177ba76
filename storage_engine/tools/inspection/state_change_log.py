"""`state-change.log`: how its lines are written and read. The reader understands every line that
the writer writes.

    2026-11-21T20:40:01.123Z broker=1 became leader partition=flights-0 leader=1 leader_epoch=4 …

A line per change of a replica's leadership, ISR or existence, in UTC, so that the files of several
brokers can be merged by time. Source: R-TOOL5.
"""

import logging
import logging.handlers
import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.errors import CommandError
from storage_engine.tools.log_format import OneLineFormatter

STATE_CHANGE_LOGGER = "headrace.state_change"
FILE_NAME = "state-change.log"

_LINE = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) broker=(\d+) (.*?\bpartition=(\S+-\d+)(?: .*)?)"
)


class StateChange(NamedTuple):
    """One line of a state-change log."""

    time: datetime
    broker: int
    partition: TopicPartition
    text: str
    """The description of the change: the part of the line after the broker."""

    @property
    def time_text(self) -> str:
        """The time as it is written in the file."""
        return time_text(self.time)


def time_text(moment: datetime) -> str:
    """Milliseconds, in UTC: 2026-11-21T20:40:01.123Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_state_changes_to(file: Path, *, broker_id: int, file_bytes: int, file_count: int) -> None:
    """From now on the broker's state changes go to `file`, which rotates, and nowhere else.

    The file is made with the first change: not before the broker has its log dirs.
    """
    handler = _StateChangeFile(
        file, maxBytes=file_bytes, backupCount=file_count, encoding="utf-8", delay=True
    )
    formatter = OneLineFormatter(
        f"%(asctime)s.%(msecs)03dZ broker={broker_id} %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logger = logging.getLogger(STATE_CHANGE_LOGGER)
    for earlier in list(logger.handlers):
        logger.removeHandler(earlier)
        earlier.close()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _StateChangeFile(logging.handlers.RotatingFileHandler):
    """A failover writes a line per partition and role: each must cost no more than its write.

    Python's handler formats a line twice and asks the file system twice for each.
    """

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        if self.stream is None:
            self.stream = self._open()
        return os.fstat(self.stream.fileno()).st_size >= self.maxBytes > 0


def read_state_changes(file: Path) -> Iterator[StateChange]:
    """The changes of a file, as they stand there. A last line that is cut off is left out.

    Raises CommandError at a line that is none of a state-change log.
    """
    with file.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            if not raw.strip():
                continue
            change = _parse(raw)
            if change is not None:
                yield change
            elif raw.endswith(b"\n"):
                raise CommandError(
                    f"{file}: line {number} is not of a {FILE_NAME} of a broker:"
                    f" '{raw[:60].decode('utf-8', 'replace').strip()}'"
                )


def newest_state_changes(file: Path, most_bytes: int) -> list[StateChange]:
    """The changes at the end of a file that grows, and of the one before it; empty where there is
    none. Lines that are none are left out: the first may be cut."""
    changes: list[StateChange] = []
    for each in (file, file.with_name(f"{file.name}.1")):
        try:
            with each.open("rb") as lines:
                size = lines.seek(0, os.SEEK_END)
                lines.seek(max(0, size - most_bytes))
                raw = lines.read(most_bytes)
        except OSError:
            continue
        found = (_parse(line + b"\n") for line in raw.split(b"\n"))
        changes = [change for change in found if change is not None] + changes
        most_bytes -= len(raw)
        if most_bytes <= 0:
            break
    return changes


def _parse(raw: bytes) -> StateChange | None:
    try:
        found = _LINE.fullmatch(raw.decode("utf-8").rstrip("\n"))
        if found is None:
            return None
        moment, broker, text, partition = found.groups()
        return StateChange(
            datetime.fromisoformat(moment), int(broker), TopicPartition.parse(partition), text
        )
    except ValueError:
        return None
