"""Clients that repeat requests which once held up a broker, each in a process of its own.

They speak to one broker, and none of their requests changes anything.
"""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.sharedctypes import Synchronized

import pyarrow as pa

from benchmarks.support.log_batches import sealed_batch
from benchmarks.support.wire_load import Endpoint, ask, connect
from storage_engine.client.closing import Closing
from storage_engine.net.frames import joined
from storage_engine.protocol.apis import list_offsets, metadata, produce
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.framing import encode_request_frame
from storage_engine.protocol.messages import create_topics
from storage_engine.protocol.records.record_encoder import iter_encoded
from storage_engine.tools.errors import CommandError

HELD_TOPIC = "steady"
"""The topic to which another client produces."""
TIMED_TOPIC = "timed"
"""A topic with one large compressed batch."""
COMPACTED_TOPIC = "compacted"
"""A topic for records with keys only: to find none, a broker decompresses them all."""
TIMED_RECORDS = 60
TIMED_RECORD_BYTES = 1_000_000
FIRST_TIME_MS = 1_000_000

_NAMES = 20_000
_MANY_PARTITIONS = 99_000
"""Items of a request: with its topic just below the most that one may have."""
_WAITING_CONNECTIONS = 10
_PAUSE_S = 0.5
_WAIT_MS = 2_000
"""How long the fetches wait; meanwhile each append makes a broker check them."""


def _frame(spec: ApiSpec[Req, Resp], version: int, message: Req) -> bytes:
    return joined(encode_request_frame(spec, version, 1, "bad", message))


def large_batch(topic: str) -> bytes:
    """Return a produce request of one batch without keys, a thousand times larger inside."""
    values = pa.array([bytes(TIMED_RECORD_BYTES)] * TIMED_RECORDS, pa.binary())
    times = pa.array(range(FIRST_TIME_MS, FIRST_TIME_MS + TIMED_RECORDS), pa.int64())
    (batch,) = iter_encoded(values, None, None, times, compression="zstd", batch_bytes=1 << 30)
    records = memoryview(bytearray(batch.data))
    item = produce.ProducePartition(topic, 0, records)
    return _frame(produce.API, 8, produce.ProduceRequest(None, 1, 10_000, [item]))


def steady_batch() -> bytes:
    """Return a small produce request with acks=all."""
    item = produce.ProducePartition(HELD_TOPIC, 0, sealed_batch(256))
    return _frame(produce.API, 8, produce.ProduceRequest(None, -1, 10_000, [item]))


def _without_keys() -> bytes:
    """Return a produce request that is refused once it is decompressed."""
    return large_batch(COMPACTED_TOPIC)


def _same_partition() -> bytes:
    """Return a fetch that waits for more bytes than exist, and names a partition 400 times."""
    part = FetchPartition(HELD_TOPIC, 0, 1 << 40, 1 << 30)._replace(fetch_offset=0)
    return _frame(FETCH, 11, FetchRequest(_WAIT_MS, 2**31 - 1, 2**31 - 1, [part] * 400))


def _many_partitions() -> bytes:
    parts = [FetchPartition(HELD_TOPIC, number, 0, 1 << 20) for number in range(_MANY_PARTITIONS)]
    return _frame(FETCH, 11, FetchRequest(_WAIT_MS, 2**31 - 1, 2**31 - 1, parts))


def _many_topics() -> bytes:
    row = create_topics.CreateTopicsRequest.CreatableTopic
    topics = [
        row(
            name=f"t{number:07}",
            num_partitions=1,
            replication_factor=99,
            assignments=[],
            configs=[],
        )
        for number in range(_NAMES)
    ]
    request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True)
    return _frame(create_topics.API, 5, request)


def _times() -> bytes:
    last_ms = FIRST_TIME_MS + TIMED_RECORDS - 1
    wanted = [list_offsets.ListOffsetsPartition(TIMED_TOPIC, 0, last_ms)]
    return _frame(list_offsets.API, 5, list_offsets.ListOffsetsRequest(wanted))


def _names() -> bytes:
    names = [f"unknown-{number}" for number in range(_MANY_PARTITIONS)]
    request = metadata.MetadataRequest(topics=names, allow_auto_topic_creation=False)
    return _frame(metadata.API, 4, request)


KINDS: dict[str, tuple[Callable[[], bytes], int]] = {
    "fetch, one partition 400 times": (_same_partition, _WAITING_CONNECTIONS),
    "fetch, 99,000 partitions": (_many_partitions, 1),
    "CreateTopics, 20,000 names": (_many_topics, 1),
    "ListOffsets by time in a batch of 60 MB": (_times, 2),
    "Metadata, 100,000 names": (_names, 1),
    "Produce of 60 MB without keys to a compacted topic": (_without_keys, 2),
}
"""The request of each kind, and the number of its connections."""


def _send_for_ever(port: int, frame: bytes, answered: "Synchronized[int]") -> None:
    while True:
        try:
            with connect(Endpoint(port)) as connection:
                while True:
                    ask(connection, frame)
                    with answered.get_lock():
                        answered.value += 1
        except (OSError, CommandError):
            time.sleep(_PAUSE_S)


class HostileClients(Closing):
    """Runs clients of all kinds at once, as long as it is entered."""

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.answered = {kind: context.Value("q", 0) for kind in KINDS}
        """The number of answered requests of each kind."""
        self._processes = [
            context.Process(
                target=_send_for_ever, args=(port, make(), self.answered[kind]), daemon=True
            )
            for kind, (make, connections) in KINDS.items()
            for _ in range(connections)
        ]

    def __enter__(self) -> "HostileClients":
        for process in self._processes:
            process.start()
        return self

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
