"""Codecs, against the libraries that other clients use."""

import gzip
import itertools
import os
import random
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import pytest
import snappy
import zstandard
from kafka.codec import snappy_decode, snappy_encode

from storage_engine.core.errors import CorruptRecordError, UnsupportedCompressionError
from storage_engine.protocol.records.compression import (
    BLOCK_BYTES,
    codec_named,
    compress,
    decompress,
)
from storage_engine.protocol.records.record_batch import Codec

ROOM = 1 << 24
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"the quick brown fox %d " * 9000
INPUTS = [
    b"a",
    TEXT,
    os.urandom(3 * BLOCK_BYTES + 5),
    bytes(BLOCK_BYTES),
    TEXT[:BLOCK_BYTES] + b"!",
]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", *INPUTS], ids=len)
def test_what_is_compressed_is_decompressed(codec, data):
    assert bytes(decompress(codec, compress(codec, data), max_bytes=len(data))) == data


@pytest.mark.parametrize("data", INPUTS, ids=len)
def test_foreign_libraries_read_what_we_write(data):
    assert gzip.decompress(compress(Codec.GZIP, data)) == data
    assert lz4.frame.decompress(bytes(compress(Codec.LZ4, data))) == data
    assert snappy_decode(bytes(compress(Codec.SNAPPY, data))) == data
    decompressor = zstandard.ZstdDecompressor()
    assert decompressor.decompress(compress(Codec.ZSTD, data), max_output_size=ROOM) == data


@pytest.mark.parametrize("data", INPUTS, ids=len)
@pytest.mark.parametrize(
    ("codec", "foreign"),
    [
        (Codec.GZIP, gzip.compress),
        (Codec.SNAPPY, snappy.compress),
        (Codec.SNAPPY, snappy_encode),
        (Codec.LZ4, lz4.frame.compress),
        (
            Codec.LZ4,
            lambda data: lz4.frame.compress(data, block_linked=False, content_checksum=True),
        ),
        (Codec.LZ4, lambda data: lz4.frame.compress(data, store_size=False)),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress),
    ],
)
def test_we_read_what_foreign_libraries_write(codec, foreign, data):
    assert bytes(decompress(codec, foreign(data), max_bytes=ROOM)) == data


def test_lz4_blocks_are_independent_because_java_refuses_others():
    assert lz4.frame.get_frame_info(bytes(compress(Codec.LZ4, TEXT)))["block_linked"] is False


def test_xerial_blocks_of_java_are_read():
    """SnappyOutputStream: a header of 16 bytes, then blocks of 32 KiB, each behind its length."""
    stream = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(TEXT), 32 * 1024):
        block = snappy.compress(TEXT[start : start + 32 * 1024])
        stream += struct.pack(">i", len(block)) + block
    assert bytes(decompress(Codec.SNAPPY, stream, max_bytes=ROOM)) == TEXT


def test_snappy_is_written_in_the_framing_of_java():
    assert bytes(compress(Codec.SNAPPY, TEXT))[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@pytest.mark.parametrize("codec", Codec)
def test_a_byte_more_than_allowed_is_an_error(codec):
    with pytest.raises(CorruptRecordError, match=f"more than the {len(TEXT) - 1} bytes allowed"):
        decompress(codec, compress(codec, TEXT), max_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_decompression_bomb_is_stopped_at_the_limit(codec):
    bomb = compress(codec, bytes(1 << 26))
    started = time.monotonic()
    with pytest.raises(CorruptRecordError):
        decompress(codec, bomb, max_bytes=1 << 20)
    assert time.monotonic() - started < 30


def test_a_snappy_block_that_claims_gigabytes_allocates_nothing():
    claim = b"\xff\xff\xff\xff\x07" + b"x" * 20
    with pytest.raises(CorruptRecordError, match="claims to yield"):
        decompress(Codec.SNAPPY, claim, max_bytes=1 << 31)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("cut", [1, 5, 40])
def test_data_that_is_cut_off_is_corrupt(codec, cut):
    with pytest.raises(CorruptRecordError, match=codec.name.lower()):
        decompress(codec, bytes(compress(codec, os.urandom(500)))[:-cut], max_bytes=ROOM)


@pytest.mark.parametrize("length", [-1, 1 << 30])
def test_a_xerial_block_length_outside_the_data_is_corrupt(length):
    stream = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, length) + b"abc"
    with pytest.raises(CorruptRecordError, match=f"block of {length} bytes"):
        decompress(Codec.SNAPPY, stream, max_bytes=ROOM)


def test_an_unknown_codec_number_is_unsupported():
    with pytest.raises(UnsupportedCompressionError, match="codec 5"):
        decompress(5, b"", max_bytes=ROOM)


def test_an_unknown_compression_type_names_the_known_ones():
    with pytest.raises(UnsupportedCompressionError, match="none, gzip, snappy, lz4, zstd"):
        codec_named("brotli")


def test_compression_types_have_kafkas_names():
    assert [codec_named(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(Codec)


@pytest.mark.parametrize("codec", Codec)
def test_threads_compress_at_the_same_time(codec):
    blocks = [random.Random(seed).randbytes(2000) * 50 for seed in range(4)]

    def compress_often(block):
        return [
            bytes(decompress(codec, compress(codec, block), max_bytes=len(block))) == block
            for _ in range(20)
        ]

    with ThreadPoolExecutor(4) as pool:
        assert all(itertools.chain.from_iterable(pool.map(compress_often, blocks)))
