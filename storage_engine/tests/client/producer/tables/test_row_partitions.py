"""Rows go to the partition that the table names, else to their key's, else by turns (R-CLI7)."""

import pyarrow as pa
import pytest

from storage_engine.client.producer.partition_choice import (
    DEFAULT,
    KEY_PARTITIONERS,
    partition_for_key,
)
from storage_engine.client.producer.producer_errors import SerializationError
from storage_engine.client.producer.tables.row_partitions import picked, rows_by_partition

ROWS = 10_000


def divided(rows, partition_count, *, named=None, keys=None, turn=0, batch_rows=1):
    """The row numbers by partition, and where the next rows without a key go."""
    found: dict[int, list[int]] = {}
    parts, after = rows_by_partition(
        rows,
        partition_count,
        named=named,
        keys=keys,
        partitioner=KEY_PARTITIONERS[DEFAULT],
        turn=turn,
        batch_rows=batch_rows,
    )
    numbers = pa.array(range(rows))
    for partition, part in parts:
        found.setdefault(partition, []).extend(picked(numbers, part).to_pylist())
    return found, after


@pytest.mark.parametrize("run", [1, 400, 600, ROWS])
def test_runs_short_and_long_keep_the_order(run):
    """Short ones are sorted, long ones are slices."""
    named = pa.array([number // run % 3 for number in range(ROWS)])
    found, _ = divided(ROWS, 3, named=named)
    assert found == {
        partition: wanted
        for partition in range(3)
        if (wanted := [n for n in range(ROWS) if n // run % 3 == partition])
    }


def test_rows_without_a_key_are_spread_in_runs_from_where_the_last_table_ended():
    found, after = divided(10, 4, turn=3, batch_rows=2)
    assert found == {3: [0, 1, 2], 0: [3, 4, 5], 1: [6, 7, 8], 2: [9]}
    assert after % 4 == 3
    assert divided(10, 4, batch_rows=8) == ({0: [*range(8)], 1: [8, 9]}, 2)


def test_a_named_partition_goes_before_the_key_and_a_row_with_neither_by_turns():
    named = pa.array([2, None, None, None, 0])
    keys = pa.array([b"k", b"k", None, None, None], pa.binary())
    found, after = divided(5, 64, named=named, keys=keys, turn=7)
    assert found == {2: [0], partition_for_key(b"k", 64): [1], 7: [2], 8: [3], 0: [4]}
    assert after == 9


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_the_topic_does_not_have_is_named(partition):
    with pytest.raises(SerializationError, match=f"names partition {partition}; .* 0 to 3"):
        divided(2, 4, named=pa.array([0, partition]))
