"""A table on a disk that is full waits, says so in one line, and goes on once there is room."""

import contextlib
from pathlib import Path

from integration_tests.lake.lakes import (
    TABLE,
    assert_equal,
    lakes,
    rows_in,
    table_at,
    typed_log,
    wait_for_rows,
)
from integration_tests.lake.writers import COLUMNS, TYPED, SteadyTransactions
from integration_tests.support.cluster_support import create_topic, wait_until


def fill(file: Path) -> None:
    """Take all the room of the file's disk."""
    with file.open("wb", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while ballast.write(bytes(size)) == size:
                    pass


def test_a_table_goes_on_when_its_full_disk_has_room_again(cluster, tmp_path, topic, disk):
    create_topic(cluster, topic, partitions=2, config={**TABLE, **TYPED})
    root = disk.path / "lake"
    with lakes(cluster, tmp_path, topic, "--root", str(root)) as (lake,):
        place = root / topic
        with SteadyTransactions(cluster, topic, rows_each=200, pause_s=0.02):
            wait_for_rows(place, 1, lake)
            ballast = disk.path / "ballast"
            fill(ballast)
            wait_until(lambda: "No space left" in lake.told(), "the disk is told of")
            before = rows_in(place)
            ballast.unlink()
            wait_for_rows(place, before + 1_000, lake)
        log = typed_log(cluster, topic, COLUMNS)
        wait_for_rows(place, log.num_rows, lake)
        assert_equal(table_at(place), log)
        told = lake.told()
    assert "Traceback" not in told
    assert "is written again into" in told
