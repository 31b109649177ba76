"""Checks that a process has ended completely.

A dying process loses its command line first and its ports, files and locks later. It has ended when
it is gone, or a zombie of one thread that its parent has not waited for.
"""

from pathlib import Path


def has_ended(pid: int) -> bool:
    """Return True once nothing of process `pid` is held any more; needs /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX" and threads <= 1
