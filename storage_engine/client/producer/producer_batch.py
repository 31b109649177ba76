"""A batch of records that a producer fills.

record -> ProducerBatch of its partition -> encoded, as one record batch of the log
"""

from typing import TYPE_CHECKING

from storage_engine.client.changed import Changed
from storage_engine.client.producer.produce_queue import OnDone
from storage_engine.client.producer.record_future import BatchOutcome, RecordFuture
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    from storage_engine.protocol.records.record_encoder import EncodedBatch

RECORD_OVERHEAD_BYTES = 25
"""The most bytes that a record takes beside its payload: length 4, attributes 1, timestamp delta 6,
offset delta 3, lengths 4 + 4, header count 3; more only for times 70 years apart."""

BATCH_OVERHEAD_BYTES = 61
HEADER_OVERHEAD_BYTES = 10

_ONE_BATCH = 1 << 30
"""The records have been kept to the batch size already."""

Headers = list[tuple[str, bytes | None]]

Record = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers, timestamp in milliseconds."""


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
        "on_done",
        "outcome",
        "records",
        "reserved",
        "settling",
        "size",
        "taken",
        "tp",
    )

    def __init__(self, tp: TopicPartition, begun_ms: int, changed: Changed) -> None:
        """`changed`: of the loop that settles it."""
        self.tp = tp
        self.begun_ms = begun_ms
        self.encoded: EncodedBatch | None = None
        """Made by the caller; then there are no records here."""
        self.records: list[Record] = []
        self.outcome = BatchOutcome(changed)
        self.on_done: OnDone = self.outcome.settle
        self.size = BATCH_OVERHEAD_BYTES
        self.reserved = 0
        """The bytes of `buffer.memory` that it holds."""
        self.taken = False
        self.closed = False
        """True once no record is added any more."""
        self.settling = False
        """Whether it has its outcome; it is `finished` when all callers are notified."""
        self.finished = False

    @classmethod
    def of_encoded(
        cls,
        tp: TopicPartition,
        begun_ms: int,
        changed: Changed,
        encoded: "EncodedBatch",
        on_done: OnDone,
    ) -> "ProducerBatch":
        """A batch that the caller has encoded already: it is closed."""
        batch = cls(tp, begun_ms, changed)
        batch.encoded, batch.on_done = encoded, on_done
        batch.size = len(encoded)
        batch.closed = True
        return batch

    def future_of(self, record: Record, index: int) -> RecordFuture:
        """The future of a record that was added at `index`; or behind it, where a signal handler
        has added others just then."""
        records = self.records
        while records[index] is not record:
            index += 1
        return RecordFuture(self.tp, self.outcome, index)

    def encode(self, compression: str) -> "EncodedBatch":
        """The record batch of all records: vectorised, without Python per record."""
        if self.encoded is not None:
            return self.encoded
        import pyarrow as pa

        from storage_engine.protocol.records.record_encoder import encode_batches
        from storage_engine.protocol.records.record_headers import HEADERS_TYPE

        keys, values, of_records, timestamps = zip(*self.records, strict=True)
        headers = None
        if any(of_records):
            rows = [[{"key": name, "value": value} for name, value in row] for row in of_records]
            headers = pa.array(rows, HEADERS_TYPE)
        keyless = all(key is None for key in keys)
        (batch,) = encode_batches(
            pa.array(values, pa.binary()),
            None if keyless else pa.array(keys, pa.binary()),
            headers,
            pa.array(timestamps, pa.int64()),
            compression=compression,
            batch_bytes=_ONE_BATCH,
        )
        return batch
