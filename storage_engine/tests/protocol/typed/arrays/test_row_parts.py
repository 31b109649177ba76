"""Parts of several batches become one piece."""

import numpy as np
import pyarrow as pa
import pytest

from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.logs import (
    decoded,
    encoded,
    frames_of,
    log_of,
    rows_from,
    schema_of,
)

SCHEMA = schema_of("id BIGINT NOT NULL, s STRING, d DOUBLE, a ARRAY<STRING>, p DECIMAL(9,2)")


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("framed", [False, True])
def test_rows_have_memory_of_their_own(batches, framed):
    """Or a few rows that somebody keeps would keep a whole answer; and it is aligned."""
    rows = rows_from(SCHEMA, [{"id": n, "s": f"t{n}", "d": n / 7, "a": ["x"]} for n in range(99)])
    read_plan = plan(SCHEMA)
    log = log_of(encoded(rows, SCHEMA) * batches)
    data = np.frombuffer(frames_of(log, read_plan, SCHEMA) if framed else log, np.uint8)
    start = data.__array_interface__["data"][0]
    (piece,) = decoded(memoryview(data), SCHEMA, read_plan, framed=framed)
    assert len(piece) == 99 * batches
    for column in piece.batch.columns:
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                assert not start <= buffer.address < start + len(data)
                assert not buffer.address % 8


def test_offsets_and_times_are_those_of_the_rows_that_are_left():
    rows = rows_from(SCHEMA, [{"id": n, "d": float(n % 3)} for n in range(10)])
    matching = [Comparison(3, Operator.EQ, (1.0,))]
    read_plan = plan(SCHEMA, ["id"], ["_timestamp"], matching)
    times = pa.array([100 + n for n in range(10)])
    log = log_of([*encoded(rows, SCHEMA), *encoded(rows, SCHEMA, timestamps=times)], 5)
    (piece,) = decoded(log, SCHEMA, read_plan, start_offset=7)
    assert piece.offsets.to_pylist() == [9, 12, 16, 19, 22]
    found = piece.batch.column("_timestamp").cast(pa.int64()).to_pylist()
    assert found[2:] == [101_000, 104_000, 107_000]


def test_batches_that_do_not_follow_one_another_keep_their_offsets():
    rows = rows_from(SCHEMA, [{"id": n} for n in range(3)])
    first, second = encoded(rows, SCHEMA), encoded(rows, SCHEMA)
    log = bytes(log_of(first, 10)) + bytes(log_of(second, 20))
    (piece,) = decoded(log, SCHEMA)
    assert piece.offsets.to_pylist() == [10, 11, 12, 20, 21, 22]
