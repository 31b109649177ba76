"""A disk that is really full: a small file system of its own, and what fills it."""

import contextlib
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from storage_engine.tools.local.local_cluster import LocalCluster

MIB = 1 << 20
DISK_BYTES = 24 * MIB
BALLAST_BYTES = 14 * MIB
RESERVE_BYTES = 4 * MIB

SETTINGS = (
    ("default.replication.factor", "1"),
    ("log.dir.min.free.bytes", str(RESERVE_BYTES)),
)


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[bool]:
    """A file system of its own at `path`; False where this user may not mount one."""
    path.mkdir(parents=True)
    options = f"size={DISK_BYTES}"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=False)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", path], check=True)


def fill(cluster: LocalCluster, data: Path, *, is_small: bool) -> Callable[[], None]:
    """Leave little room; the result makes room again. Where nothing can be mounted, a limit to the
    size of the broker's files stands in for the size of its disk."""
    if is_small:
        ballast = data / "ballast"
        ballast.write_bytes(bytes(BALLAST_BYTES))
        return ballast.unlink
    pid = cluster.state.brokers[0].pid
    assert pid is not None
    _soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (6 * MIB, hard))

    def make_room() -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    return make_room
