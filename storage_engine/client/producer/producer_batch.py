"""A batch of records that a producer fills.

record -> ProducerBatch of its partition -> encoded, as one record batch of the log
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from storage_engine.client.producer.record_future import BatchOutcome, RecordFuture
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    from storage_engine.protocol.records.records import EncodedBatch

RECORD_OVERHEAD_BYTES = 25
"""The most bytes that a record takes beside its payload: length 4, attributes 1, timestamp delta 6,
offset delta 3, lengths 4 + 4, header count 3; more only for times 70 years apart."""

BATCH_OVERHEAD_BYTES = 61
HEADER_OVERHEAD_BYTES = 10

_ONE_BATCH = 1 << 30
"""The records have been kept to the batch size already."""

Headers = list[tuple[str, bytes | None]]

OnDone = Callable[[int, HeadraceError | None], None]
"""Called with the base offset of a batch (-1 when no broker returned it), or the error of all its
records."""


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The most bytes that a record takes in a batch."""
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return size


class ProducerBatch:
    """Records of one partition that are sent together."""

    __slots__ = (
        "begun_ms",
        "closed",
        "encoded",
        "finished",
        "headers",
        "keys",
        "on_done",
        "outcome",
        "reserved",
        "settling",
        "size",
        "taken",
        "timestamps",
        "tp",
        "values",
    )

    def __init__(self, tp: TopicPartition, begun_ms: int) -> None:
        self.tp = tp
        self.begun_ms = begun_ms
        self.encoded: EncodedBatch | None = None
        """Made by the caller; then there are no records here."""
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.timestamps: list[int] = []
        self.outcome = BatchOutcome()
        self.on_done: OnDone = self.outcome.settle
        self.size = BATCH_OVERHEAD_BYTES
        self.reserved = 0
        """Bytes of `buffer.memory`."""
        self.taken = False
        self.closed = False
        self.settling = False
        """Whether it has its outcome; it is `finished` when all who wait have been told."""
        self.finished = False

    @classmethod
    def of_encoded(
        cls, tp: TopicPartition, begun_ms: int, encoded: "EncodedBatch", on_done: OnDone
    ) -> "ProducerBatch":
        """A batch that the caller has encoded already: it is closed."""
        batch = cls(tp, begun_ms)
        batch.encoded, batch.on_done = encoded, on_done
        batch.size = len(encoded)
        batch.closed = True
        return batch

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        size: int,
    ) -> RecordFuture:
        """Add a record that takes `size` bytes at most."""
        future = RecordFuture(self.tp, self.outcome, len(self.keys))
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)
        self.timestamps.append(timestamp_ms)
        self.size += size
        return future

    def encode(self, compression: str) -> "EncodedBatch":
        """The record batch of all records: vectorised, without Python per record."""
        if self.encoded is not None:
            return self.encoded
        import pyarrow as pa

        from storage_engine.protocol.records.records import HEADERS_TYPE, encode_batches

        headers = None
        if any(self.headers):
            rows = [[{"key": name, "value": value} for name, value in row] for row in self.headers]
            headers = pa.array(rows, HEADERS_TYPE)
        keyless = all(key is None for key in self.keys)
        (batch,) = encode_batches(
            pa.array(self.values, pa.binary()),
            None if keyless else pa.array(self.keys, pa.binary()),
            headers,
            pa.array(self.timestamps, pa.int64()),
            compression=compression,
            batch_bytes=_ONE_BATCH,
        )
        return batch
