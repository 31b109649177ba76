"""A real disk that can lose power: an ext4 file system on a loop device, shut down by ext4's own
ioctl. From then on every call ends with EIO, and what was in the page cache only never gets to it.

A sync that is under way at that very moment tells nothing: Linux 6.18 ends some of them without an
error though they have written nothing (1 of 60 in a loop of write and fdatasync), since ext4 takes
an aborted transaction that is gone for one that was committed.
"""

import fcntl
import os
import struct
import subprocess
from pathlib import Path

from storage_engine.tools.local.broker_process import BrokerProcess
from storage_engine.tools.local.broker_settings import read_settings, write_settings
from storage_engine.tools.local.local_cluster import LocalCluster

DISK_BYTES = 64 << 20

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


class LoopDisk:
    """A disk of its own, which can fail and be repaired."""

    def __init__(self, image: Path, path: Path) -> None:
        self._image = image
        self.path = path
        path.mkdir()
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        _run("mkfs.ext4", "-q", "-F", image)

    def mount(self) -> None:
        _run("mount", "-o", "loop", self._image, self.path)

    def fail(self) -> None:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(folder)

    def unmount(self) -> None:
        _run("umount", self.path)

    def repair(self) -> None:
        self.unmount()
        # 1: errors were corrected.
        subprocess.run(["fsck.ext4", "-p", self._image], check=False, capture_output=True)
        self.mount()


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


def start_with_log_dirs(cluster: LocalCluster, broker_id: int, *paths: Path) -> None:
    """Start a stopped broker on these log dirs; it does not serve yet."""
    entry = cluster.state.broker(broker_id)
    config = cluster.directory / entry.config
    log_dirs = ",".join(map(str, paths))
    write_settings(config, {**read_settings(config), "log.dirs": log_dirs})
    BrokerProcess(cluster.directory, entry).start()
