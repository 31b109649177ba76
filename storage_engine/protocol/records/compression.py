"""Compresses and decompresses the records block of a batch.

Decompressed data never exceeds the given limit, or comes in pieces of a given size.

Codecs as Kafka's clients read and write them:

    gzip     a gzip stream
    snappy   written in xerial's framing (what Java writes); read in that framing or raw
    lz4      an LZ4 frame; written with independent blocks, because Java refuses dependent ones
    zstd     a zstd frame

    xerial framing      bytes  meaning
    magic                  8   0x82 'SNAPPY' 0x00
    version                4   1
    oldest reader          4   1
    blocks: length         4   big endian, of the raw snappy block that follows

    LZ4 frame           bytes  meaning
    magic                  4   0x184D2204, little endian like all of the frame
    FLG, BD, HC            3   version and flags; largest block; a checksum of FLG and BD
    blocks: length         4   top bit set: the block that follows is stored, not compressed
    end mark               4   0

Source: KIP-57 (LZ4 framing), KIP-110 (zstd), the snappy-java and LZ4 frame formats; R-LOG7.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from storage_engine.core.errors import (
    CorruptRecordError,
    DecompressedTooLargeError,
    UnsupportedCompressionError,
)
from storage_engine.protocol.records.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    BytesLike,
    Codec,
    seal,
    write_header,
)

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DECOMPRESSED_BYTES = 64 << 20
"""The most bytes to which a broker decompresses one batch or one append: a small request must not
fill its memory. Kafka has no such bound; its clients' batches are a sixtieth of this."""

BLOCK_BYTES = 64 * 1024
"""The input of one snappy or LZ4 block: the window of both formats, and Java's choice for LZ4."""

_FIRST_READ_RATIO = 8
"""The first read of a stream has room for this many times its size, which is enough for most
batches."""
_LEAST_READ_BYTES = 64 * 1024

_JOINED_ALONE_BYTES = 1 << 20

_GZIP_LEVEL = 6
"""The level of Kafka, and the library's own default. Arrow's is 9: up to sixteen times the work,
for no fewer bytes."""

_SNAPPY_LARGEST_RATIO = 64
"""A snappy element of 3 bytes yields at most 64 bytes: no memory is allocated for a larger
claim."""

_LARGEST_BLOCK_BYTES = (1 << 31) - 1
"""The most bytes that a binary array of Arrow can hold."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_LENGTH = struct.Struct(">i")

_LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Version 1, independent blocks, no checksums, no content size; blocks of at most 64 KiB."""
_LZ4_LENGTH = struct.Struct("<I")
_LZ4_STORED = 0x8000_0000
_LZ4_END = bytes(4)

_STREAM_NAMES = {Codec.GZIP: "gzip", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}


def codec_named(name: str) -> Codec:
    """Return the codec of a `compression.type`; UnsupportedCompressionError names the possible
    ones."""
    try:
        return Codec[name.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise UnsupportedCompressionError(
            f"the compression type '{name}' is unknown: use one of {names}"
        ) from None


def compress(codec: Codec, data: BytesLike) -> BytesLike:
    """Return `data` compressed; `data` itself with Codec.NONE."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.GZIP:
            return _view(_arrow_codec("gzip", _GZIP_LEVEL).compress(data))
        case Codec.ZSTD:
            return _view(_arrow_codec("zstd").compress(data))


def recompressed(header: BatchHeader, section: BytesLike, codec: Codec) -> bytearray:
    """Return the whole batch of that header with another codec; `section` has its records,
    decompressed. They are the same bytes as before, and producer, times and transaction stay as
    they are."""
    block = compress(codec, section)
    batch = bytearray(HEADER_BYTES) + block
    fresh = header._replace(
        length=len(batch) - LENGTH_END, attributes=header.attributes & ~CODEC_MASK | codec
    )
    seal(batch, 0, fresh)
    return batch


def uncompressed(header: BatchHeader, section: BytesLike) -> memoryview:
    """Return the whole batch of that header without compression, for code that checks no CRC: it
    keeps the one that it has. `section` has its records, decompressed."""
    import pyarrow as pa

    # Arrow's memory is used again, Python's is given back: fresh pages take longer than the copy.
    batch = memoryview(pa.allocate_buffer(HEADER_BYTES + len(section))).cast("B")
    attributes = header.attributes & ~CODEC_MASK
    write_header(batch, header._replace(length=len(batch) - LENGTH_END, attributes=attributes))
    batch[HEADER_BYTES:] = section
    return batch


def decompress(codec: int, data: BytesLike, *, max_bytes: int) -> BytesLike:
    """Return the records block in `data`; CorruptRecordError when damaged or larger than
    `max_bytes`."""
    pieces = iter_decompressed(codec, data, piece_bytes=max_bytes + 1, most_bytes=max_bytes)
    piece = next(pieces, b"")
    if len(piece) > max_bytes:
        raise _too_large(max_bytes)
    return piece


def iter_decompressed(
    codec: int, data: BytesLike, *, piece_bytes: int, most_bytes: int | None = None
) -> Iterator[BytesLike]:
    """Yield the records block in `data` in pieces; CorruptRecordError when damaged.

    A piece has `piece_bytes`, but for the last, which may have fewer, and none is empty. Blocks of
    snappy are never cut: its pieces are larger by less than a block. What is not compressed is one
    piece. A block of snappy above `most_bytes` is refused before it is unpacked.
    """
    if codec == Codec.NONE:
        if len(data):
            yield data
        return
    if codec == Codec.SNAPPY:
        most = _LARGEST_BLOCK_BYTES if most_bytes is None else most_bytes
        yield from _snappy_pieces(memoryview(data), piece_bytes, most)
        return
    try:
        name = _STREAM_NAMES[Codec(codec)]
    except ValueError:
        raise UnsupportedCompressionError(
            f"the compression codec {codec} is unknown: it needs a newer client"
        ) from None
    yield from _stream_pieces(name, data, piece_bytes)


def _stream_pieces(name: str, data: BytesLike, piece_bytes: int) -> Iterator[BytesLike]:
    import pyarrow as pa

    parts: list[BytesLike] = []
    total = 0
    room = max(_LEAST_READ_BYTES, _FIRST_READ_RATIO * len(data))
    stream = None
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name)
        while True:
            wanted = min(room, piece_bytes - total)
            part = _view(stream.read_buffer(wanted))
            total += len(part)
            parts.append(part)
            is_last = len(part) < wanted
            if total and (is_last or total == piece_bytes):
                yield joined(parts)
                parts, total = [], 0
            if is_last:
                return
            room *= 2
    except (OSError, pa.ArrowException) as error:
        raise _damaged(name, error) from None
    finally:
        if stream is not None:
            stream.close()


def _compress_xerial(data: BytesLike) -> BytesLike:
    codec = _arrow_codec("snappy")
    framed = bytearray(_XERIAL_HEADER)
    for block in _blocks(data):
        compressed = codec.compress(block)
        framed += _XERIAL_LENGTH.pack(compressed.size)
        framed += compressed
    return framed


def _compress_lz4(data: BytesLike) -> BytesLike:
    codec = _arrow_codec("lz4_raw")
    framed = bytearray(_LZ4_HEADER)
    for block in _blocks(data):
        compressed = codec.compress(block)
        if compressed.size < len(block):
            framed += _LZ4_LENGTH.pack(compressed.size)
            framed += compressed
        else:
            framed += _LZ4_LENGTH.pack(len(block) | _LZ4_STORED)
            framed += block
    framed += _LZ4_END
    return framed


def _blocks(data: BytesLike) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), BLOCK_BYTES):
        yield view[start : start + BLOCK_BYTES]


def _snappy_pieces(data: memoryview, piece_bytes: int, most_bytes: int) -> Iterator[BytesLike]:
    parts: list[BytesLike] = []
    total = 0
    for block in _snappy_blocks(data):
        part = _decompress_snappy_block(block, max(0, most_bytes - total), most_bytes)
        parts.append(part)
        total += len(part)
        if total >= piece_bytes:
            yield joined(parts)
            parts, total = [], 0
    if total:
        yield joined(parts)


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """Yield the raw blocks, compressed."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield data
        return
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if len(data) - position < _XERIAL_LENGTH.size:
            raise _damaged("snappy", "a block length is cut off")
        (length,) = _XERIAL_LENGTH.unpack_from(data, position)
        position += _XERIAL_LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise _damaged("snappy", f"a block of {length} bytes, {len(data) - position} are left")
        yield data[position : position + length]
        position += length


def _decompress_snappy_block(block: memoryview, room: int, max_bytes: int) -> BytesLike:
    """Decompress one raw snappy block, which begins with a varint of its decompressed size."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise _damaged("snappy", "a block without a valid size")
    if size > room:
        raise _too_large(max_bytes)
    if size > _SNAPPY_LARGEST_RATIO * len(block):
        raise _damaged("snappy", f"a block of {len(block)} bytes claims to yield {size}")
    try:
        return _view(_arrow_codec("snappy").decompress(block, size))
    except (OSError, ValueError) as error:
        raise _damaged("snappy", error) from None


def joined(parts: Sequence[BytesLike]) -> BytesLike:
    """Concatenate the parts. Large ones are joined by numpy, which lets other threads run
    meanwhile: a broker's event loop does not wait for the copy."""
    if len(parts) == 1:
        return parts[0]
    if sum(map(len, parts)) < _JOINED_ALONE_BYTES:
        return b"".join(parts)
    import numpy as np

    return np.concatenate([np.frombuffer(part, np.uint8) for part in parts]).data


def _arrow_codec(name: str, level: int | None = None) -> "pa.Codec":
    """Return a new codec each time: that of gzip has a state, and two threads in one codec crash
    the process."""
    import pyarrow as pa

    return pa.Codec(name, level)


def _view(buffer: "pa.Buffer") -> memoryview:
    """Return the bytes of a pa.Buffer. A codec shrinks its output buffer, and a view of that buffer
    itself would still have the old length (seen with PyArrow 26); a view of a slice has the right
    one."""
    return memoryview(buffer.slice(0, buffer.size)).cast("B")


def _too_large(max_bytes: int) -> DecompressedTooLargeError:
    return DecompressedTooLargeError(
        f"its records decompress to more than the {max_bytes} bytes allowed"
    )


def _damaged(name: str, reason: Exception | str) -> CorruptRecordError:
    text = " ".join(str(reason).split())
    return CorruptRecordError(f"its {name} data is damaged: {text}")
