"""Processor time of the brokers and the Spark of a side, as Linux tells it in /proc.

Rule: a process that has ended counts with whoever waited for it, so nothing is lost between two
looks: what Spark's short-lived Python workers took is in the figure.
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
    """Seconds, in the kernel too."""

    brokers: float = 0.0
    jvm: float = 0.0
    """Spark's own."""
    python: float = 0.0
    """The driver's, and that of all Python workers."""

    @property
    def all(self) -> float:
        """What the side took."""
        return sum(self)

    def since(self, before: "CpuTimes") -> "CpuTimes":
        """What came after `before`."""
        return CpuTimes(*(now - then for now, then in zip(self, before, strict=True)))


class _Stat(NamedTuple):
    parent: int
    name: str
    ticks: int
    """Of its own."""
    ended_ticks: int
    """Of its children that have ended."""


def check_proc() -> None:
    """CommandError where there is none."""
    if not _PROC.joinpath("self/stat").exists():
        raise CommandError("processor time is read from /proc, which Linux has: run it there")


def cpu_times(brokers: Collection[int], spark: int) -> CpuTimes:
    """Of these brokers, and of the process that runs Spark with all below it, since they began."""
    stats = _stats()
    of_spark = _tree(stats, [spark])
    jvm = sum(each.ticks for each in of_spark if each.name == _JVM)
    whole = sum(each.ticks + each.ended_ticks for each in of_spark)
    of_brokers = sum(each.ticks + each.ended_ticks for each in _tree(stats, brokers))
    unit = os.sysconf("SC_CLK_TCK")
    return CpuTimes(of_brokers / unit, jvm / unit, (whole - jvm) / unit)


def seconds_of(processes: Collection[int]) -> float:
    """Of these alone, since they began: their ended children are not in it, and it is finer than
    the ticks that /proc counts in, which short work needs."""
    return sum(time.clock_gettime(_clock_of(pid)) for pid in processes)


def _clock_of(process_id: int) -> int:
    """The kernel's clock of a process's processor time: what clock_getcpuclockid(3) makes."""
    return (~process_id << 3) | 2


def _tree(stats: dict[int, _Stat], roots: Collection[int]) -> list[_Stat]:
    """The roots and all below them."""
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
