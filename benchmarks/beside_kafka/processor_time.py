"""The processor time of a side's brokers and Spark, as Linux reports it in /proc.

Rule: a process that has ended counts with the parent that waited for it, so that no time is lost
between two readings, not even the time of Spark's short-lived Python workers.
"""

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from storage_engine.tools.errors import CommandError

_PROC = Path("/proc")
_JVM = "java"


class CpuTimes(NamedTuple):
    """Processor time in seconds, in the kernel too."""

    brokers: float = 0.0
    jvm: float = 0.0
    """The time of Spark's JVM."""
    python: float = 0.0
    """The time of the driver's Python and of all Python workers."""

    @property
    def all(self) -> float:
        """The processor time of the whole side."""
        return sum(self)

    def since(self, before: "CpuTimes") -> "CpuTimes":
        """Return the processor time since `before`."""
        return CpuTimes(*(now - then for now, then in zip(self, before, strict=True)))


class _Stat(NamedTuple):
    parent: int
    name: str
    ticks: int
    """The process's own time, in clock ticks."""
    ended_ticks: int
    """The time of its children that have ended, in clock ticks."""


def check_proc() -> None:
    """CommandError on a system without /proc."""
    if not _PROC.joinpath("self/stat").exists():
        raise CommandError("processor time is read from /proc, which Linux has: run it there")


def cpu_times(brokers: Collection[int], spark: int) -> CpuTimes:
    """Return the times, since their start, of the brokers and of a Spark with its descendants."""
    stats = _stats()
    of_spark = _tree(stats, [spark])
    jvm = sum(each.ticks for each in of_spark if each.name == _JVM)
    whole = sum(each.ticks + each.ended_ticks for each in of_spark)
    of_brokers = sum(each.ticks + each.ended_ticks for each in _tree(stats, brokers))
    unit = os.sysconf("SC_CLK_TCK")
    return CpuTimes(of_brokers / unit, jvm / unit, (whole - jvm) / unit)


def seconds_of(processes: Collection[int]) -> float:
    """Return the processes' own time since their start, without children that have ended. It is
    finer than the ticks of /proc, as short work needs it."""
    return sum(time.clock_gettime(_clock_of(pid)) for pid in processes)


def _clock_of(process_id: int) -> int:
    """Return the kernel's id of a process's CPU clock, as clock_getcpuclockid(3) makes it."""
    return (~process_id << 3) | 2


def _tree(stats: dict[int, _Stat], roots: Collection[int]) -> list[_Stat]:
    """Return the roots and all their descendants."""
    wanted = set(roots)
    left = list(wanted)
    while left:
        parent = left.pop()
        below = [pid for pid, stat in stats.items() if stat.parent == parent and pid not in wanted]
        left += below
        wanted.update(below)
    return [stats[pid] for pid in wanted if pid in stats]


def _stats() -> dict[int, _Stat]:
    found = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            # The name in brackets may hold blanks and brackets itself.
            head, _, tail = path.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = tail.split()
        own = int(fields[11]) + int(fields[12])
        ended = int(fields[13]) + int(fields[14])
        name = head.partition("(")[2]
        found[int(path.parent.name)] = _Stat(int(fields[1]), name, own, ended)
    return found
