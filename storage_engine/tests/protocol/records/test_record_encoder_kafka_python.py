"""kafka-python reads what we write, and we read what it writes, for every codec."""

import numpy as np
import pyarrow as pa
import pytest
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from storage_engine.protocol.records.record_batch import Codec
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

NOW = 1_700_000_000_000


def rows(count: int) -> list[tuple]:
    """Keys, values, headers and timestamps: null, empty, short, long; varints of several sizes."""
    random = np.random.default_rng(7)
    made = []
    for index in range(count):
        key = None if index % 5 == 0 else b"key-%d" % (index % 11)
        value = None if index % 13 == 0 else random.bytes(int(random.integers(0, 300)))
        headers = [(f"h{i}", None if i == 2 else random.bytes(i)) for i in range(index % 4)]
        made.append((key, value, headers, NOW + index * 17))
    made[count // 2] = (b"", b"x" * 90_000, [("", b"")], NOW)
    return made


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("batch_bytes", [1, 5000, 1 << 20])
def test_kafka_python_reads_what_we_write(codec, batch_bytes):
    expected = rows(1000 if batch_bytes > 1 else 60)
    keys, values, headers, timestamps = zip(*expected, strict=True)
    batches = encode_batches(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        pa.array(headers, HEADERS_TYPE),
        pa.array(timestamps),
        compression=codec.name.lower(),
        batch_bytes=batch_bytes,
    )
    records = MemoryRecords(b"".join(bytes(batch.data) for batch in batches))
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += [
            (
                record.key,
                record.value,
                [tuple(header) for header in record.headers],
                record.timestamp,
            )
            for record in batch
        ]
    assert found == expected


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("batch_bytes", [400, 1 << 20])
def test_we_read_what_kafka_python_writes(codec, batch_bytes):
    expected = rows(1000)
    blob = b""
    offset = 0
    remaining = list(expected)
    while remaining:
        builder = MemoryRecordsBuilder(2, int(codec), batch_bytes, offset=offset)
        while remaining:
            key, value, headers, timestamp = remaining[0]
            if builder.append(timestamp, key, value, headers) is None:
                break
            remaining.pop(0)
            offset += 1
        builder.close()
        blob += bytes(builder.buffer())
    decoded = decode_batches(blob, include_headers=True)
    found = list(
        zip(
            decoded.keys.to_pylist(),
            decoded.values.to_pylist(),
            [
                [(header["key"], header["value"]) for header in headers or []]
                for headers in decoded.headers.to_pylist()
            ],
            decoded.timestamps_ms.to_pylist(),
            strict=True,
        )
    )
    assert found == expected
    assert decoded.offsets.to_pylist() == list(range(1000))
