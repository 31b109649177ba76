"""What lies in the log dirs of stopped brokers, and whether it is sound."""

import sys
from collections.abc import Iterable
from pathlib import Path

from integration_tests.forks.forked import run
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.protocol.records.record_decoder import iter_decoded

CHECKED_SUFFIXES = (".log", ".index", ".timeindex")

Row = tuple[int, bytes, bytes]
"""Offset, key, value."""


def folders_of(directory: Path, tp: TopicPartition) -> list[Path]:
    """Of all replicas in the folder of a cluster."""
    return sorted(directory.glob(f"broker-*/data/{tp}"))


def log_bytes(folder: Path) -> bytes:
    """All segments, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def first_offset(folder: Path) -> int:
    return min(int(path.stem) for path in folder.glob("*.log"))


def bytes_from(folder: Path, offset: int) -> bytes:
    """The batches from the one with `offset` on."""
    data = log_bytes(folder)
    for position, header in iter_headers(data):
        if header.next_offset > offset:
            return data[position:]
    return b""


def rows_in(folder: Path) -> list[Row]:
    rows: list[Row] = []
    for part in iter_decoded(memoryview(log_bytes(folder))):
        columns = (part.offsets, part.keys, part.values)
        rows += zip(*(column.to_pylist() for column in columns), strict=True)
    return rows


def newest_of(rows: Iterable[Row]) -> dict[bytes, tuple[int, bytes]]:
    return {key: (offset, value) for offset, key, value in rows}


def assert_replicas_agree(directory: Path, tp: TopicPartition, *, compacts: bool) -> None:
    """From where all of them have it on: byte for byte; where each compacts for itself, the newest
    of each key and no offset with two contents. Each replica applies `retention.bytes` to what
    its own compaction left, so that logs of one partition may begin at different offsets."""
    folders = folders_of(directory, tp)
    assert len(folders) == 3, f"{tp} has the replicas {folders}"
    start_offset = max(map(first_offset, folders))
    if not compacts:
        first, *others = (bytes_from(folder, start_offset) for folder in folders)
        assert first, f"nothing is left of {tp}"
        for folder, other in zip(folders[1:], others, strict=True):
            assert first == other, f"{folders[0]} and {folder} differ from {start_offset} on"
        return
    stored = [[row for row in rows_in(folder) if row[0] >= start_offset] for folder in folders]
    newest = newest_of(stored[0])
    assert newest, f"nothing is left of {tp}"
    known: dict[int, tuple[bytes, bytes]] = {}
    for folder, rows in zip(folders, stored, strict=True):
        differing = sorted(newest_of(rows).items() ^ newest.items())
        assert not differing, (
            f"{folders[0]} and {folder} differ from {start_offset} on in the newest values of "
            f"{len(differing)} keys: {differing[:10]}"
        )
        for offset, key, value in rows:
            assert known.setdefault(offset, (key, value)) == (key, value), (
                f"{folder} has another record at offset {offset}"
            )


def assert_files_are_sound(directory: Path) -> int:
    """`headrace dump-log --deep` finds nothing wrong in any file; how many there are."""
    paths = [
        path
        for path in sorted(directory.glob("broker-*/data/*/*"))
        if path.suffix in CHECKED_SUFFIXES
    ]
    command = [sys.executable, "-m", "storage_engine.tools.cli", "dump-log", "--deep"]
    for first in range(0, len(paths), 500):
        done = run([*command, *map(str, paths[first : first + 500])], text=True)
        assert done.returncode == 0, done.stderr
    return len(paths)
