"""Requests as bytes, encoded before the measurement, and the form of their answers.

All requests of a measurement have one size and all answers have one size, so that a load generator
only counts bytes; the contents of the answers are checked afterwards, all at once.
"""

from dataclasses import dataclass

from storage_engine.net.frames import joined
from storage_engine.protocol.apis import fetch, produce
from storage_engine.protocol.framing import encode_request_frame, encode_response_frame
from storage_engine.protocol.records.record_batch import HEADER_BYTES

PRODUCE_VERSION = 9
"""The newest version that brokers serve, which is what clients agree on."""
FETCH_VERSION = 11
"""The newest version whose answers end with the records."""

CLIENT_ID = "headrace-bench"
_TIMEOUT_MS = 30_000
_MAX_WAIT_MS = 500

CORRELATION_ID_AT = 4
"""The place of the correlation id in answers; in requests it is four bytes later."""

BASE_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceFrames:
    """A ring of requests that go to one partition, one batch each."""

    ring: bytes
    """Whole frames with the correlation ids 0, 1, ..."""
    frame_bytes: int
    answer: bytes
    """A good answer; correlation id and base offset are 0."""
    base_offset_at: int
    """The place of the base offset in an answer."""
    records_per_batch: int

    @property
    def request_bytes(self) -> int:
        """The size of a request without its length field."""
        return self.frame_bytes - 4

    @property
    def count(self) -> int:
        return len(self.ring) // self.frame_bytes


def produce_frames(
    topic: str, batch_bytes: int, count: int, *, seed: int, acks: int = 1
) -> ProduceFrames:
    """Return `count` requests; each batch is of exactly `batch_bytes` and random."""
    frames = []
    for number in range(count):
        batch, records = random_batch(batch_bytes, seed=seed + number)
        request = produce.ProduceRequest(
            None, acks, _TIMEOUT_MS, [produce.ProducePartition(topic, 0, batch)]
        )
        pieces = encode_request_frame(produce.API, PRODUCE_VERSION, number, CLIENT_ID, request)
        frames.append(joined(pieces))
    answer, marked = (_produce_answer(topic, base_offset) for base_offset in (0, 1))
    last_different = next(at for at in range(len(answer)) if answer[at] != marked[at])
    return ProduceFrames(
        ring=b"".join(frames),
        frame_bytes=len(frames[0]),
        answer=answer,
        base_offset_at=last_different - BASE_OFFSET_BYTES + 1,
        records_per_batch=records,
    )


def _produce_answer(topic: str, base_offset: int) -> bytes:
    partition = produce.ProducePartitionResponse(topic, 0, 0, base_offset, -1, 0)
    response = produce.ProduceResponse([partition])
    return joined(encode_response_frame(produce.API, PRODUCE_VERSION, 0, response))


def random_batch(batch_bytes: int, *, seed: int) -> tuple[memoryview, int]:
    """Return an uncompressed batch of exactly that size, and the number of its records: about 100
    bytes each."""
    import numpy as np
    import pyarrow as pa

    from storage_engine.protocol.records.record_encoder import encode_batches

    random = np.random.default_rng(seed)
    records = max(1, (batch_bytes - HEADER_BYTES) // 110)
    sizes = np.full(records, 100, np.int64)
    while True:
        values = pa.array([random.bytes(size) for size in sizes.tolist()], pa.binary())
        (batch,) = encode_batches(values, batch_bytes=1 << 30)
        missing = batch_bytes - len(batch.data)
        if not missing:
            return memoryview(batch.data), records
        # Spread evenly; the sizes' own varints may grow, so check again.
        sizes += missing // records
        sizes[: missing % records] += 1


def fetch_frame(topic: str, max_bytes: int, offset: int) -> bytes:
    """Return a consumer's request for up to `max_bytes` from `offset` on."""
    partition = fetch.FetchPartition(topic, 0, offset, max_bytes)
    request = fetch.FetchRequest(_MAX_WAIT_MS, 1, max_bytes, [partition])
    return joined(encode_request_frame(fetch.API, FETCH_VERSION, 0, CLIENT_ID, request))


def check_answers(received: bytearray, frames: ProduceFrames, *, first: int) -> str | None:
    """Return the first error in the answers to requests `first`, `first` + 1, ... of a connection;
    None if there is none.
    """
    import numpy as np

    size = len(frames.answer)
    rows = np.frombuffer(received, np.uint8).reshape(-1, size)
    ids = rows[:, CORRELATION_ID_AT : CORRELATION_ID_AT + 4].copy().view(">i4").ravel()
    expected_ids = (first + np.arange(len(rows))) % frames.count
    wrong = np.flatnonzero(ids != expected_ids)
    if len(wrong):
        return f"answer {wrong[0]} has the correlation id {ids[wrong[0]]}"
    fixed = np.ones(size, bool)
    fixed[CORRELATION_ID_AT : CORRELATION_ID_AT + 4] = False
    fixed[frames.base_offset_at : frames.base_offset_at + BASE_OFFSET_BYTES] = False
    expected = np.frombuffer(frames.answer, np.uint8)[fixed]
    wrong = np.flatnonzero((rows[:, fixed] != expected).any(axis=1))
    if len(wrong):
        return f"answer {wrong[0]} is not a good one: {bytes(rows[wrong[0]]).hex()}"
    return None
