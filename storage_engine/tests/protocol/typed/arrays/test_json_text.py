"""Values as JSON text, where Arrow's own text is another."""

import json
import struct
from decimal import Decimal

import pyarrow as pa
import pytest

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.typed.arrays.ipc_message import column_kind, write_message
from storage_engine.protocol.typed.arrays.json_text import json_texts
from storage_engine.protocol.typed.column_codec import load_column
from storage_engine.tests.protocol.typed.arrays.loaded_columns import LIMIT, entry_for
from storage_engine.tests.protocol.typed.json_support import as_json, records_of, rows_in, typed
from storage_engine.tests.protocol.typed.logs import encoded, log_of, rows_from, schema_of


def test_times_outside_of_four_digits_have_a_sign_and_six():
    schema = schema_of("day DATE, at TIMESTAMP")
    days = [2_147_483_647, -719_163, 2_932_897, None]
    times = [(1 << 63) - 1, -(1 << 63), -62_135_596_800_000_001, 0]
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(days, pa.int32()).view(pa.date32()),
            pa.array(times, pa.int64()).view(pa.timestamp("us", "UTC")),
        ],
        names=["day", "at"],
    )
    found = decode_batches([as_json(log_of(encoded(rows, schema)), schema)]).values.to_pylist()
    assert [tuple(json.loads(each).values()) for each in found] == [
        ("+5881580-07-11", "+294247-01-10T04:00:54.775807Z"),
        ("+000000-12-31", "-290308-12-21T19:59:05.224192Z"),
        ("+010000-01-01", "+000000-12-31T23:59:59.999999Z"),
        (None, "1970-01-01T00:00:00.000000Z"),
    ]


NEAR_ZERO = {
    "0": "0.00000000",
    "1E-8": "0.00000001",
    "-1E-8": "-0.00000001",
    "-0.0000012": "-0.00000120",
    "0.0000001": "0.00000010",
    "1": "1.00000000",
    "-1234.5": "-1234.50000000",
}


@pytest.mark.parametrize("key", [None, "k"])
def test_decimals_have_all_digits_of_their_scale(key):
    """Arrow writes numbers near zero with an exponent."""
    schema = schema_of("k DECIMAL(12,8) NOT NULL, d DECIMAL(38,38)", [] if key is None else [key])
    rows = [{"k": Decimal(each), "d": None} for each in NEAR_ZERO] * 2
    rows[1]["d"], rows[2]["d"] = Decimal("-1E-38"), Decimal("." + "9" * 38)
    log = log_of(encoded(rows_from(schema, rows), schema))
    records = decode_batches([as_json(log, schema)])
    texts = list(NEAR_ZERO.values()) * 2
    assert [each.decode().split(",")[0] for each in records.values.to_pylist()] == [
        f'{{"k":{each}' for each in texts
    ]
    assert b"-0." + b"0" * 37 + b"1" in records.values[1].as_py()
    assert records.keys.to_pylist() == [None if key is None else each.encode() for each in texts]
    again = records_of(records.values.to_pylist(), records.keys.to_pylist())
    assert rows_in(typed(again, schema), schema) == rows_in(log, schema)


def test_buffers_that_end_with_a_part_of_a_number_are_read_or_refused():
    """Arrow takes them for valid."""
    column_type = schema_of("a ARRAY<STRING>").latest.columns[0].type
    array = pa.array([["a", "b"], None, []], pa.list_(pa.string()))
    block = bytes(write_message(array))
    accepted = 0
    for position in range(8, 8 + struct.unpack_from("<I", block, 4)[0]):
        for change in (1, 5, 255):
            changed = bytearray(block)
            changed[position] = (changed[position] + change) % 256
            entry = entry_for(changed, nulls=1)
            try:
                found = load_column(
                    bytes(changed), entry, column_kind(array.type), 3, max_bytes=LIMIT
                )
            except CorruptRecordError:
                continue
            accepted += 1
            json_texts(found, column_type)
    assert accepted > 10
