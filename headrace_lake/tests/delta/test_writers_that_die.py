"""Writers at one table are killed at any moment: each row stands once, and none is missing."""

import random
import subprocess
import sys
import time

import deltalake
import pytest

from headrace_lake.tests.lake_tables import opened
from storage_engine.tests.sampling import ALL_FAULTS

KILLS = 60 if ALL_FAULTS else 4


def started(folder, seed: int, partitions: list[int]) -> subprocess.Popen:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "headrace_lake.tests.delta.killed_writer",
            str(folder),
            str(seed),
            *map(str, partitions),
        ]
    )


@pytest.mark.parametrize("of_each", [[[0], [1]], [[0], [0]], [[0, 1], [1]]], ids=str)
def test_each_row_stands_once(tmp_path, of_each):
    chance = random.Random(4711)
    opened(tmp_path)
    writers = [started(tmp_path, seed, each) for seed, each in enumerate(of_each)]
    try:
        for kill in range(KILLS):
            begun = opened(tmp_path).version
            deadline = time.monotonic() + 60
            while deltalake.DeltaTable(str(tmp_path)).version() < begun + 3:
                assert all(each.poll() is None for each in writers), "a writer ended by itself"
                assert time.monotonic() < deadline
            time.sleep(chance.random() * 0.1)
            number = kill % len(writers)
            writers[number].kill()
            writers[number].wait()
            writers[number] = started(tmp_path, 100 + kill, of_each[number])
    finally:
        for each in writers:
            each.kill()
            each.wait()
    rows = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()
    progress = opened(tmp_path).progress([0, 1])
    assert progress
    for partition, reached in progress.items():
        of_partition = [each for each in rows.to_pylist() if each["_partition"] == partition]
        offsets = sorted(each["_offset"] for each in of_partition)
        assert offsets == list(range(reached.end_offset))
        assert all(each["text"] == f"{partition}-{each['_offset']}" for each in of_partition)
    assert rows.num_rows == sum(each.end_offset for each in progress.values())
