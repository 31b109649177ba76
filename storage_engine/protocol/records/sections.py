"""The records of a batch in sections of bounded size, however large it is unpacked.

A leader does not unpack what it stores, so a batch of a few KB may hold some GBs. Nearly every
batch is one section. A larger one is unpacked in steps, and the whole records of a step are a
section: a reader's memory grows with the largest record, not with the batch.

Source: the record format of the Kafka protocol (drawn in record_encoder.py); R-LOG7.
"""

from collections.abc import Iterator
from typing import NamedTuple

from storage_engine.core.errors import CorruptRecordError, DecompressedTooLargeError
from storage_engine.protocol.records.arrow_binary import LARGEST_ARRAY_BYTES
from storage_engine.protocol.records.compression import iter_decompressed, joined
from storage_engine.protocol.records.control_record import VARINT_BYTES, read_varint, varint_at
from storage_engine.protocol.records.record_batch import HEADER_BYTES, BatchHeader, BytesLike
from storage_engine.protocol.records.record_chain import LEAST_BODY_BYTES, LEAST_RECORD_BYTES

SECTION_BYTES = 16 << 20
"""Batches up to this size are one section. Kafka's max.message.bytes is 1 MiB by default; text
compresses tenfold or so."""


class Section(NamedTuple):
    """Whole records of a batch that follow one another."""

    header: BatchHeader
    """The batch's, but with the number of records of this section."""
    records: BytesLike
    first_record: int
    """The number of the batch's records before this section."""


def corrupt_batch(header: BatchHeader, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"the record batch at offset {header.base_offset} is damaged: {reason}"
    )


def iter_sections(
    header: BatchHeader,
    batch: memoryview,
    *,
    max_bytes: int | None = None,
    section_bytes: int = SECTION_BYTES,
) -> Iterator[Section]:
    """Yield the records of a batch that has some, in order; no section is without a record, and
    each begins behind the offsets of the one before. Raises CorruptRecordError, also where there
    are more than `max_bytes`."""
    pieces = _pieces(header, batch, section_bytes, max_bytes)
    piece, following = next(pieces, b""), next(pieces, None)
    if following is None:
        if len(piece) < header.records_count * LEAST_RECORD_BYTES:
            raise corrupt_batch(
                header, f"{header.records_count} records can't fit into {len(piece)} bytes"
            )
        yield Section(header, piece, 0)
        return
    cut = _Cut(header)
    while following is not None:
        if (section := cut.add(piece)) is not None:
            yield section
        piece, following = following, next(pieces, None)
    yield cut.rest(piece)


def _pieces(
    header: BatchHeader, batch: memoryview, piece_bytes: int, max_bytes: int | None
) -> Iterator[BytesLike]:
    total = 0
    block = batch[HEADER_BYTES:]
    if max_bytes is not None:
        piece_bytes = min(piece_bytes, max_bytes + 1)
    pieces = iter_decompressed(
        header.compression, block, piece_bytes=piece_bytes, most_bytes=max_bytes
    )
    try:
        for piece in pieces:
            total += len(piece)
            if max_bytes is not None and total > max_bytes:
                raise DecompressedTooLargeError(
                    f"its records decompress to more than the {max_bytes} bytes allowed"
                )
            yield piece
    except CorruptRecordError as error:
        raise corrupt_batch(header, str(error)) from None


class _Cut:
    """Cuts unpacked bytes behind their last whole record."""

    def __init__(self, header: BatchHeader) -> None:
        self._header = header
        self._done = 0
        """The number of records in the sections so far."""
        self._last_delta = -1
        """The offset delta of the last record in the sections so far."""
        self._waiting: list[BytesLike] = []
        """The beginning of the next section: less than its first record, but for what is added."""
        self._size = 0
        self._needed = 0
        """The size of `_waiting` with which its first record is whole."""

    def add(self, piece: BytesLike) -> Section | None:
        """Return the whole records, if there are some."""
        self._waiting.append(piece)
        self._size += len(piece)
        if self._size < self._needed:
            return None
        view = memoryview(joined(self._waiting))
        count, last, end = self._whole_records(view)
        self._waiting, self._size, self._needed = [view[end:]], len(view) - end, self._needed - end
        if not count:
            return None
        section = self._section(count, view[:end])
        self._last_delta = self._delta(view, last)
        return section

    def rest(self, piece: BytesLike) -> Section:
        """Return the records of the last piece, and what waited for it."""
        count = self._header.records_count - self._done
        records = memoryview(joined([*self._waiting, piece]))
        if count <= 0 or len(records) < count * LEAST_RECORD_BYTES:
            raise corrupt_batch(
                self._header,
                f"the batch says {self._header.records_count} records, {len(records)} bytes come "
                f"after {self._done}",
            )
        return self._section(count, records)

    def _whole_records(self, view: memoryview) -> tuple[int, int, int]:
        """Return how many there are, where the last begins, and where it ends."""
        count = last = position = 0
        while (read := read_varint(view, position, len(view))) is not None:
            length, body = read
            if length < LEAST_BODY_BYTES:
                raise self._corrupt(count, f"its length is {length}")
            self._needed = body + length
            if self._needed > len(view):
                if length > LARGEST_ARRAY_BYTES - VARINT_BYTES:
                    raise self._corrupt(count, f"it has {length} bytes, more than a row can have")
                return count, last, position
            last, position = position, self._needed
            count += 1
        if len(view) - position >= VARINT_BYTES:
            raise self._corrupt(count, "its length is too long")
        self._needed = len(view) + 1
        return count, last, position

    def _section(self, count: int, records: memoryview) -> Section:
        # Order within a section is checked where it is decoded, with all its fields.
        if self._delta(records, 0) <= self._last_delta:
            raise self._corrupt(0, "its offset delta is out of order")
        first = self._done
        self._done += count
        return Section(self._header._replace(records_count=count), records, first)

    def _delta(self, view: memoryview, start: int) -> int:
        """Return the offset delta of the record that begins there."""
        try:
            _, at = varint_at(view, start)
            # The attributes byte, then the timestamp delta.
            _, at = varint_at(view, at + 1)
            return varint_at(view, at)[0]
        except ValueError:
            raise self._corrupt(0, "its offset delta is cut off") from None

    def _corrupt(self, record: int, reason: str) -> CorruptRecordError:
        return corrupt_batch(self._header, f"record {self._done + record}: {reason}")
