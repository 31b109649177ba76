"""Batches compressed anew: the same records with another codec, and everything else as it was."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from storage_engine.core.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTxnStateError,
    RecordTooLargeError,
)
from storage_engine.core.typed.avro_text import avro_text
from storage_engine.core.typed.foreign_format import ForeignFormat
from storage_engine.log.append_rules import Requirement, prepare, requirement_of
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.records.compression import decompress, recompressed
from storage_engine.protocol.records.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    Codec,
    crc_matches,
    iter_headers,
    read_header,
    seal,
)
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.protocol.typed.foreign.avro_support import (
    all_rows,
    writers_of,
    written,
)
from storage_engine.tests.protocol.typed.logs import TOPIC_ID, schema_of
from storage_engine.tests.sampling import examples

LIMIT = 1 << 20
KEPT = (
    "base_offset",
    "partition_leader_epoch",
    "magic",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "records_count",
)


def batch_of(
    values, codec: Codec, *, producer=(-1, -1, -1), is_transactional=False, has_keys=True
) -> bytes:
    (batch,) = encode_batches(
        pa.array(values, pa.binary()),
        pa.array([b"k"] * len(values), pa.binary()) if has_keys else None,
        now_ms=1000,
        batch_bytes=1 << 30,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )
    header = read_header(batch.data)
    data = recompressed(header, batch.data[HEADER_BYTES:], codec)
    if is_transactional:
        header = read_header(data)
        seal(data, 0, header._replace(attributes=header.attributes | TRANSACTIONAL_BIT))
    return bytes(data)


def prepared(data: bytes, requirement: Requirement, *, limit: int = LIMIT) -> bytes:
    done = prepare(memoryview(data), requirement, max_message_bytes=limit, allow_transactional=True)
    return bytes(done)


def records_of(data: bytes) -> list[bytes]:
    return [
        bytes(decompress(header.compression, data[at + HEADER_BYTES : at + header.size_in_bytes],
                         max_bytes=1 << 26))
        for at, header in iter_headers(data)
    ]  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(
    batches=st.lists(
        st.tuples(
            st.lists(st.one_of(st.none(), st.binary(max_size=300)), min_size=1, max_size=6),
            st.sampled_from(Codec),
            st.sampled_from([(-1, -1, -1), (5, 0, 0), (1 << 40, 7, 0x7FFFFFFF)]),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    ),
    codec=st.sampled_from(Codec),
    keys=st.booleans(),
)
def test_the_records_and_all_but_the_codec_stay_as_they_were(batches, codec, keys):
    sent = b"".join(
        batch_of(values, own, producer=who, is_transactional=in_one and who[0] >= 0)
        for values, own, who, in_one in batches
    )
    stored = prepared(sent, Requirement(keys, codec))
    assert records_of(stored) == records_of(sent)
    before = [header for _, header in iter_headers(sent)]
    after = list(iter_headers(stored))
    assert len(after) == len(before)
    for was, (position, header) in zip(before, after, strict=True):
        assert header.compression == codec
        assert crc_matches(stored, position, header.size_in_bytes)
        assert header.attributes & ~CODEC_MASK == was.attributes & ~CODEC_MASK
        assert [getattr(header, f) for f in KEPT] == [getattr(was, f) for f in KEPT]
        if was.compression == codec:
            assert header.crc == was.crc


@pytest.mark.parametrize("stored", list(Codec))
@pytest.mark.parametrize("sent", list(Codec))
def test_an_independent_reader_reads_what_was_compressed_anew(sent, stored):
    """More than the 64 KiB of one LZ4 or snappy block, which depend on each other if written
    wrongly."""
    values = [bytes((n * i * i) % 251 for i in range(9_000)) for n in range(20)]
    data = prepared(batch_of(values, sent), Requirement(False, stored))
    batch = MemoryRecords(data).next_batch()
    assert batch.compression_type == stored
    assert [record.value for record in batch] == values


@pytest.mark.parametrize("codec", list(Codec))
def test_columns_of_avro_are_the_same_however_their_records_are_compressed(codec):
    schema = schema_of("id BIGINT, s STRING")
    text = avro_text(schema, schema.latest, "t")
    values = [written(text, {"id": number, "s": "x" * (number % 50)}) for number in range(300)]
    keyless = batch_of(values, Codec.NONE, has_keys=False)
    requirement = Requirement(False, None, schema, ForeignFormat.AVRO)
    options = {"writers": writers_of(text), "max_message_bytes": LIMIT, "topic_id": TOPIC_ID}

    def columns_of(data: bytes) -> bytes:
        return bytes(prepare(memoryview(data), requirement, allow_transactional=False, **options))

    plain = columns_of(keyless)
    assert crc_matches(plain, 0, len(plain))
    assert [row["id"] for row, _ in all_rows(memoryview(plain), schema)] == list(range(300))
    compressed = batch_of(values, codec, has_keys=False)
    assert columns_of(compressed) == plain
    two = columns_of(compressed + keyless)
    assert two == plain + plain


def test_what_does_not_decompress_is_refused_for_good():
    """Not as CORRUPT_MESSAGE, which a client answers by sending the same bytes again."""
    data = bytearray(batch_of([b"x" * 500], Codec.ZSTD))
    data[HEADER_BYTES + 4] ^= 0xFF
    with pytest.raises(CorruptRecordError, match="CRC"):
        prepared(bytes(data), Requirement(False, Codec.GZIP))
    seal(data, 0, read_header(data))
    with pytest.raises(InvalidRecordError, match="can't be decompressed"):
        prepared(bytes(data), Requirement(False, Codec.GZIP))


def test_batches_are_checked_before_any_work_on_them():
    data = batch_of([b"x"], Codec.ZSTD, producer=(1, 0, 0), is_transactional=True)
    with pytest.raises(InvalidTxnStateError):
        prepare(
            memoryview(data),
            Requirement(False, Codec.LZ4),
            max_message_bytes=LIMIT,
            allow_transactional=False,
        )
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        prepared(data, Requirement(False, Codec.LZ4), limit=50)


def test_keys_are_looked_at_when_a_batch_is_compressed_anew():
    (batch,) = encode_batches(pa.array([b"v"]), pa.array([None], pa.binary()), now_ms=0)
    with pytest.raises(InvalidRecordError, match="no key"):
        prepared(bytes(batch.data), Requirement(True, Codec.LZ4))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LogConfig(), None),
        (LogConfig(cleanup_policy="compact"), Requirement(True, None)),
        (LogConfig(compression_type="uncompressed"), Requirement(False, Codec.NONE)),
        (
            LogConfig(compression_type="lz4", cleanup_policy="compact,delete"),
            Requirement(True, Codec.LZ4),
        ),
    ],
)
def test_a_topics_settings_say_what_is_asked_for(config, expected):
    assert requirement_of(config) == expected
