"""Turns rows into record batches and back, for clients.

Neither way runs Python per record. Rows are Arrow arrays, batches are bytes.

    column         type
    key            binary
    value          binary
    offset         int64
    timestamp      timestamp[us, UTC]
    timestampType  int32
    headers        list<struct<key: string, value: binary>>

Source: R-LOG6, R-LOG7; Spark's Kafka connector has these columns, and topic and partition.
"""

import pyarrow as pa

from storage_engine.protocol.records.record_decoder import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    GROUP_BYTES,
    DecodedLogs,
    DecodedRecords,
    LogPiece,
    decode_batches,
    iter_decoded,
    iter_decoded_logs,
)
from storage_engine.protocol.records.record_encoder import (
    DEFAULT_BATCH_BYTES,
    EncodedBatch,
    encode_batches,
    iter_encoded,
)
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

RECORD_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS_TYPE),
    ]
)

__all__ = [
    "DEFAULT_BATCH_BYTES",
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "GROUP_BYTES",
    "HEADERS_TYPE",
    "RECORD_SCHEMA",
    "DecodedLogs",
    "DecodedRecords",
    "EncodedBatch",
    "LogPiece",
    "decode_batches",
    "encode_batches",
    "iter_decoded",
    "iter_decoded_logs",
    "iter_encoded",
]
