"""Records as a table with the columns of Spark's sources."""

import pyarrow as pa

from storage_engine.client.fetching.record_tables import SCHEMA, batch_of
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

TP = TopicPartition("clicks", 3)


def test_each_record_is_a_row_with_its_place():
    headers = pa.array([[{"key": "h", "value": None}], None], HEADERS_TYPE)
    (batch,) = encode_batches(
        pa.array([b"v", None], pa.binary()), pa.array([None, b"k"], pa.binary()), headers, now_ms=7
    )
    made = batch_of(TP, decode_batches(bytes(batch.data), include_headers=True))
    assert made.schema == SCHEMA
    rows = made.to_pylist()
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        ("clicks", 3, 0),
        ("clicks", 3, 1),
    ]
    assert [(row["key"], row["value"]) for row in rows] == [(None, b"v"), (b"k", None)]
    assert rows[0]["headers"] == [{"key": "h", "value": None}]
    assert {(row["timestamp"].timestamp(), row["timestampType"]) for row in rows} == {(0.007, 0)}
