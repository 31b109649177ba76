"""Records with damage, and the error of a batch that has them."""

import pytest

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.compression import compress
from storage_engine.protocol.records.record_batch import Codec
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.protocol.naive_codec import NaiveRecord, varint, wrap

GOOD = NaiveRecord(0, 5, b"key", b"value", [("h", b"x")])


def rejected(blob, **options) -> str:
    with pytest.raises(CorruptRecordError) as failure:
        decode_batches(blob, include_headers=True, **options)
    text = str(failure.value)
    assert "\n" not in text
    return text


def record(body: bytes) -> bytes:
    return varint(len(body)) + body


def body_of(
    *,
    timestamp: bytes = b"\x00",
    offset: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x02v",
    headers: bytes = b"\x00",
) -> bytes:
    return b"\x00" + timestamp + offset + key + value + headers


TOO_LONG = b"\xff\xff\xff\xff\xff\x01"


def assert_damage(records: bytes, reason: str) -> None:
    """A batch of one such record is refused for this reason, compressed or not."""
    for codec in (Codec.NONE, Codec.LZ4):
        data = bytes(compress(codec, records))
        text = rejected(wrap(data, count=1, base_offset=4711, attributes=codec))
        assert text.startswith("the record batch at offset 4711 is damaged: ")
        assert reason in text
