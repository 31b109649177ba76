"""Processor time of whole trees of processes, as Linux tells it in /proc.

Rule: a process that has ended counts with whoever waited for it, so nothing is lost between two
looks: what Spark's short-lived Python workers took is in the figure.
"""

import os
from collections.abc import Collection
from pathlib import Path

from storage_engine.tools.errors import CommandError

_PROC = Path("/proc")


def check_proc() -> None:
    """CommandError where there is none."""
    if not _PROC.joinpath("self/stat").exists():
        raise CommandError("processor time is read from /proc, which Linux has: run it there")


def cpu_seconds(pids: Collection[int]) -> float:
    """Of these processes and all below them since they began, in the kernel too."""
    stats = _stats()
    wanted = set(pids)
    left = list(wanted)
    while left:
        parent = left.pop()
        below = [pid for pid, (its_parent, _) in stats.items() if its_parent == parent]
        left += [pid for pid in below if pid not in wanted]
        wanted.update(below)
    ticks = sum(stats[pid][1] for pid in wanted if pid in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def _stats() -> dict[int, tuple[int, int]]:
    """(parent, ticks) of each process; the ticks are its own and those of children that ended."""
    found = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            # The name in brackets may hold blanks and brackets itself.
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    return found
