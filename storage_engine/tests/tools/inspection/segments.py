"""Segment files written by hand, for tests that read them."""

from pathlib import Path

import pyarrow as pa

from storage_engine.log.segments import indexes
from storage_engine.protocol.records.record_batch import patch
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tools.cli import main

BASE_OFFSET = 100
PADDING = b"-" * 100
"""Something to compress: what would not get smaller is stored as it is."""


class Segment:
    """A segment of batches with 2, 1 and 3 records from offset 100 on, and its indexes."""

    def __init__(self, directory: Path) -> None:
        stem = f"{BASE_OFFSET:020d}"
        self.log = directory / f"{stem}.log"
        self.index = directory / f"{stem}.index"
        self.timeindex = directory / f"{stem}.timeindex"
        self.positions: list[int] = []
        content = bytearray()
        offset = BASE_OFFSET
        for number, count in enumerate((2, 1, 3)):
            batch = encode_batches(
                pa.array([b"value-%d%s" % (offset + i, PADDING) for i in range(count)]),
                pa.array([b"key", None, b"\xff"][:count], pa.binary()),
                timestamps_ms=pa.array([1000 * (number + 1)] * count),
                compression=("none", "lz4", "zstd")[number],
            )[0]
            patch(batch.data, 0, base_offset=offset, leader_epoch=7)
            self.positions.append(len(content))
            content += batch.data
            offset += count
        self.log.write_bytes(content)
        self.index.write_bytes(
            indexes.OFFSET_ENTRY.pack(2, self.positions[1])
            + indexes.OFFSET_ENTRY.pack(5, self.positions[2])
        )
        self.timeindex.write_bytes(
            indexes.TIME_ENTRY.pack(2000, 2) + indexes.TIME_ENTRY.pack(3000, 5)
        )

    def damage(self, position: int, value: int = 0xAA) -> None:
        content = bytearray(self.log.read_bytes())
        content[position] ^= value
        self.log.write_bytes(content)


def dump(*arguments: object) -> int:
    """Runs `headrace dump-log`; its exit status."""
    return main(["dump-log", *map(str, arguments)])
