"""Produce requests in a row that differ in correlation id and records alone, as a producer with
many small batches for one partition sends them.

    request    size | api key, version | correlation id | client id ... partition | size of records
               | records | [three empty tag buffers, when flexible]
    response   size | correlation id | ... | base offset | ...

A frame counts as alike only if it is byte for byte what the encoder would make of the same request
with other records; all others are decoded one by one. The general decoder gives the pattern, and
the general encoder the answers.
"""

import struct
from collections.abc import Hashable, Sequence
from itertools import repeat
from typing import NamedTuple, Self

from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import produce
from storage_engine.protocol.apis.wire import INT32, uvarint
from storage_engine.protocol.framing import encode_response_frame
from storage_engine.protocol.records.batch_columns import BatchColumns
from storage_engine.protocol.records.record_batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    BytesLike,
)

SIZES_KNOWN = 1024
"""The most sizes of frames whose layout a pattern remembers."""

COPIED_MAX_BYTES = 32768
"""Records up to this size are copied, so that a run of them is one write; larger ones are used
where they were received."""

LONGEST_SPAN = 1024
"""The most frames that are unpacked together."""

_SIZE_BYTES = 4
_IDS_BYTES = 8
"""The api key, the version and the correlation id."""
_TAGS = b"\x00\x00\x00"
_MARK = 0x0102030405060708
"""A base offset by which its place in a frame is found; its bytes can't be in the name of a
topic."""


class ProduceRun(NamedTuple):
    """Requests that follow one another."""

    pattern: "ProducePattern"
    correlation_ids: list[int]
    columns: BatchColumns
    """The one batch of each request."""
    end: int
    """The position after the last of these frames."""


class _Layout:
    """The layout of frames of one size: the places of their fields, and the bytes that all of them
    share."""

    __slots__ = (
        "_batch_at",
        "_batch_end",
        "_batch_length",
        "_frame",
        "_head",
        "_middle",
        "copies",
        "stride",
    )

    def __init__(
        self,
        size: int,
        api_and_version: bytes,
        middle: bytes,
        records_size: bytes,
        records_bytes: int,
        tail_bytes: int,
    ) -> None:
        """`records_size` is the encoded size of the records."""
        self._head = INT32.pack(size) + api_and_version
        self._middle = middle + records_size
        self._batch_length = records_bytes - LENGTH_END
        """The length field of a batch that fills the records."""
        self.stride = _SIZE_BYTES + size
        """The size of a whole frame."""
        self._batch_end = self.stride - tail_bytes
        self._batch_at = self._batch_end - records_bytes
        self.copies = records_bytes <= COPIED_MAX_BYTES
        """Whether the bytes that the CRC protects are copied."""
        sealed = f"{records_bytes - ATTRIBUTES_AT}{'s' if self.copies else 'x'}"
        tail = f"{tail_bytes}s" if tail_bytes else ""
        self._frame = struct.Struct(
            f">{len(self._head)}si{len(self._middle)}s8xi4xBI{sealed}{tail}"
        )
        """Head, correlation id, middle, batch length, magic, CRC, the bytes that the CRC protects,
        tail."""

    def matching(
        self, view: memoryview, starts: range
    ) -> tuple[Sequence[int], Sequence[int], Sequence[BytesLike]]:
        """Return the correlation ids, the CRCs, and either copies of the bytes that these protect
        or views of whole batches, of the frames that begin at `starts`, up to the first that does
        not match."""
        rows = map(self._frame.unpack_from, repeat(view), starts)
        heads, ids, middles, lengths, magics, crcs, *rest = zip(*rows, strict=True)
        sealed = rest.pop(0) if self.copies else ()
        good = min(
            _count_of(heads, self._head),
            _count_of(middles, self._middle),
            _count_of(lengths, self._batch_length),
            _count_of(magics, MAGIC),
            *(_count_of(tail, _TAGS) for tail in rest),
        )
        if self.copies:
            return ids[:good], crcs[:good], sealed[:good]
        begin, end = self._batch_at, self._batch_end
        batches = [view[start + begin : start + end] for start in starts[:good]]
        return ids[:good], crcs[:good], batches


def _count_of(column: Sequence[Hashable], value: Hashable) -> int:
    """Return how many items at the beginning of the column are `value`."""
    if column.count(value) == len(column):
        return len(column)
    return next(number for number, each in enumerate(column) if each != value)


class ProducePattern:
    """The bytes that all requests of a run to one partition share."""

    __slots__ = (
        "_answer",
        "_answer_log_start",
        "_api_and_version",
        "_flexible",
        "_frame_max_bytes",
        "_middle",
        "_sizes",
        "_span",
        "_tail_bytes",
        "acks",
        "partition",
        "timeout_ms",
        "version",
    )

    def __init__(
        self,
        frame: memoryview,
        version: int,
        request: produce.ProduceRequest,
        *,
        middle_end: int,
        frame_max_bytes: int,
    ) -> None:
        """Instances are made by `of`."""
        (item,) = request.partitions
        self.version = version
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.partition = TopicPartition(item.topic, item.partition)
        self._flexible = version >= produce.FIRST_FLEXIBLE
        self._frame_max_bytes = frame_max_bytes
        self._api_and_version = bytes(frame[:4])
        self._middle = bytes(frame[_IDS_BYTES:middle_end])
        self._tail_bytes = len(_TAGS) if self._flexible else 0
        # The keys are sizes without the four bytes of the size itself.
        self._sizes: dict[int, _Layout] = {}
        self._span = 1
        self._answer: tuple[struct.Struct, bytes, bytes, bytes] | None = None
        self._answer_log_start = -1

    @classmethod
    def of(
        cls,
        frame: memoryview,
        version: int,
        request: produce.ProduceRequest,
        *,
        frame_max_bytes: int,
    ) -> Self | None:
        """Return the pattern of a decoded request, given with its frame; None when it has none:
        several partitions, a transaction, no answer wanted, or an unusual encoding.

        Frames above `frame_max_bytes` never match."""
        if (
            version < produce.FIRST_WITH_V2_BATCHES
            or request.acks not in (-1, 1)
            or request.transactional_id is not None
            or len(request.partitions) != 1
        ):
            return None
        records = request.partitions[0].records
        if not isinstance(records, memoryview):
            return None
        flexible = version >= produce.FIRST_FLEXIBLE
        size = uvarint(len(records) + 1) if flexible else INT32.pack(len(records))
        tail = _TAGS if flexible else b""
        middle_end = len(frame) - len(tail) - len(records) - len(size)
        pattern = cls(
            frame, version, request, middle_end=middle_end, frame_max_bytes=frame_max_bytes
        )
        rest = bytes(frame[middle_end : middle_end + len(size)])
        if rest != size or bytes(frame[len(frame) - len(tail) :]) != tail:
            return None
        return pattern

    def match(self, view: memoryview, position: int, end: int, most: int) -> ProduceRun | None:
        """Return the whole frames from `position` on that match and have one batch of magic 2 each,
        at most `most`; None when the first does not. All of their batches are copied, or none.

        `view` up to `end` is what was received, and may be changed; each frame follows its size.
        """
        ids: list[int] = []
        crcs: list[int] = []
        batches: list[BytesLike] = []
        copies: bool | None = None
        # Frames of one size are unpacked together, twice as many as the last time they all fitted.
        span = self._span
        while end - position >= _SIZE_BYTES and len(ids) < most:
            size = INT32.unpack_from(view, position)[0]
            known = self._sizes.get(size) or self._learn(size)
            if known is None or copies not in (None, known.copies):
                break
            stride, copies = known.stride, known.copies
            count = min(span, (end - position) // stride, most - len(ids))
            if count < 1:
                break
            starts = range(position, position + count * stride, stride)
            some_ids, some_crcs, some_batches = known.matching(view, starts)
            good = len(some_ids)
            ids += some_ids
            crcs += some_crcs
            batches += some_batches
            position += good * stride
            if good < count:
                span = max(1, good)
                if not good:
                    break
            elif good == span:
                span *= 2
        self._span = min(span, LONGEST_SPAN)
        if not ids:
            return None
        columns = BatchColumns(crcs, batches) if copies else BatchColumns.in_place(crcs, batches)
        return ProduceRun(self, ids, columns, position)

    def _learn(self, size: int) -> "_Layout | None":
        """Return the layout of frames of that size; None when it is too small or too large."""
        if size > self._frame_max_bytes:
            return None
        left = size - _IDS_BYTES - len(self._middle) - self._tail_bytes
        encoded = None
        if self._flexible:
            for size_bytes in range(1, 6):
                if left >= size_bytes and len(uvarint(left - size_bytes + 1)) == size_bytes:
                    encoded = uvarint(left - size_bytes + 1)
        elif left >= _SIZE_BYTES:
            encoded = INT32.pack(left - _SIZE_BYTES)
        if encoded is None or left - len(encoded) < HEADER_BYTES:
            return None
        if len(self._sizes) >= SIZES_KNOWN:
            self._sizes.clear()
        self._sizes[size] = known = _Layout(
            size,
            self._api_and_version,
            self._middle,
            encoded,
            left - len(encoded),
            self._tail_bytes,
        )
        return known

    def answers(self, correlation_ids: list[int], base_offsets: list[int], log_start: int) -> bytes:
        """Return the response frames for batches that were appended at these offsets."""
        if self._answer is None or log_start != self._answer_log_start:
            self._answer = self._cut_answer(log_start)
            self._answer_log_start = log_start
        layout, size, middle, tail = self._answer
        return b"".join(
            map(
                layout.pack,
                repeat(size),
                correlation_ids,
                repeat(middle),
                base_offsets,
                repeat(tail),
            )
        )

    def _cut_answer(self, log_start: int) -> tuple[struct.Struct, bytes, bytes, bytes]:
        topic, index = self.partition
        row = produce.ProducePartitionResponse(topic, index, 0, _MARK, -1, log_start)
        response = produce.ProduceResponse([row])
        (frame,) = encode_response_frame(produce.API, self.version, 0, response)
        assert isinstance(frame, bytes)
        at = frame.index(_MARK.to_bytes(8, "big"))
        size, middle, tail = frame[:4], frame[8:at], frame[at + 8 :]
        return struct.Struct(f">4si{len(middle)}sq{len(tail)}s"), size, middle, tail
