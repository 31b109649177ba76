"""Decoded records as Spark's rows."""

import datetime
import subprocess
import sys

import pyarrow as pa
import pytest

from connector.schema import ALL_COLUMNS, COLUMNS, source_arrow_schema
from connector.source.arrow_batches import (
    MAX_BATCH_ROWS,
    arrow_batches,
    arrow_batches_of_several,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import (
    LogPiece,
    decode_batches,
    iter_decoded,
    iter_decoded_logs,
)
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

TP = TopicPartition("flights", 3)


def _decoded(values, *, include_headers=False, **columns):
    batches = encode_batches(pa.array(values, pa.binary()), **columns)
    return decode_batches([batch.data for batch in batches], include_headers=include_headers)


def test_rows_have_the_columns_of_sparks_kafka_connector():
    decoded = _decoded(
        [b"v0", None],
        keys=pa.array([None, b"k1"], pa.binary()),
        headers=pa.array([[("h", b"x"), ("h", None)], None], HEADERS_TYPE),
        timestamps_ms=pa.array([1_700_000_000_123, -1], pa.int64()),
        include_headers=True,
    )
    (batch,) = arrow_batches(decoded, TP, columns=ALL_COLUMNS)
    assert batch.schema.equals(source_arrow_schema(ALL_COLUMNS))
    first, second = batch.to_pylist()
    assert first == {
        "key": None,
        "value": b"v0",
        "topic": "flights",
        "partition": 3,
        "offset": 0,
        "timestamp": datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC).replace(
            microsecond=123_000
        ),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}, {"key": "h", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"]) == (b"k1", None, None)
    assert second["timestamp"].timestamp() == -0.001


def test_batches_are_no_longer_than_the_limit_and_keep_every_row():
    count = MAX_BATCH_ROWS * 2 + 7
    batches = list(arrow_batches(_decoded([b"v"] * count), TP, columns=COLUMNS))
    assert [batch.num_rows for batch in batches] == [MAX_BATCH_ROWS, MAX_BATCH_ROWS, 7]
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(count))
    batches[1].validate(full=True)


@pytest.mark.parametrize("count", [3, MAX_BATCH_ROWS])
def test_rows_of_several_partitions_share_a_record_batch_and_tell_where_they_come_from(count):
    origins = [TP, TopicPartition("flights", 7), TopicPartition("trains", 3)]
    for places in (origins[:1], origins[:2], origins):
        encoded = list(encode_batches(pa.array([b"v"] * count, pa.binary())))
        pieces = [LogPiece(tp, batch.data, 1, None) for tp in places for batch in encoded]
        (decoded,) = iter_decoded_logs(pieces, group_bytes=1 << 30)
        batches = list(arrow_batches_of_several(decoded, columns=COLUMNS))
        assert all(batch.schema.equals(source_arrow_schema(COLUMNS)) for batch in batches)
        assert all(batch.num_rows <= MAX_BATCH_ROWS for batch in batches)
        rows = pa.Table.from_batches(batches)
        rows.validate(full=True)
        assert rows.column("topic").to_pylist() == [
            tp.topic for tp in places for _ in range(1, count)
        ]
        assert rows.column("partition").to_pylist() == [
            tp.partition for tp in places for _ in range(1, count)
        ]
        assert rows.column("offset").to_pylist() == [*range(1, count)] * len(places)


def test_columns_that_nobody_asked_for_are_not_decoded():
    encoded = encode_batches(pa.array([b"v0", b"v1"], pa.binary()))
    (decoded,) = iter_decoded(
        [batch.data for batch in encoded], include_keys=False, include_values=False
    )
    assert decoded.keys is None
    assert decoded.values is None
    (batch,) = arrow_batches(decoded, TP, columns=("topic", "offset"))
    assert batch.to_pylist() == [
        {"topic": "flights", "offset": 0},
        {"topic": "flights", "offset": 1},
    ]


def test_records_become_rows_without_pandas_and_without_the_functions_of_all_kernels():
    """A Python worker of Spark's would import them first: half a second, and 0.03 s."""
    program = """
import sys
import pyarrow as pa
from connector.schema import ALL_COLUMNS, COLUMNS
from connector.source.arrow_batches import arrow_batches, arrow_batches_of_several
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import (
    LogPiece, decode_batches, iter_decoded_logs
)

data = bytes.fromhex(sys.argv[1])
pieces = [LogPiece(TopicPartition(name, 3), data) for name in ("flights", "trains")]
(decoded,) = iter_decoded_logs(pieces)
(batch,) = arrow_batches_of_several(decoded, columns=COLUMNS)
assert batch.num_rows == 4
assert "pyarrow.compute" not in sys.modules
(batch,) = arrow_batches(
    decode_batches([bytes.fromhex(sys.argv[1])], include_headers=True),
    TopicPartition("flights", 3),
    columns=ALL_COLUMNS,
)
assert batch.num_rows == 2
(decoded,) = iter_decoded_logs(pieces, include_headers=True)
(batch,) = arrow_batches_of_several(decoded, columns=ALL_COLUMNS)
assert batch.num_rows == 4
sys.exit("pandas" in sys.modules)
"""
    (encoded,) = encode_batches(
        pa.array([b"v", None], pa.binary()),
        keys=pa.array([None, b"k"], pa.binary()),
        headers=pa.array([[("h", b"x"), ("h", None)], None], HEADERS_TYPE),
    )
    command = [sys.executable, "-c", program, bytes(encoded.data).hex()]
    assert subprocess.run(command, check=False).returncode == 0


def test_no_records_are_no_rows():
    decoded = decode_batches([])
    assert len(decoded.timestamps) == 0
    assert list(arrow_batches(decoded, TP, columns=("timestamp", "topic", "partition"))) == []
