"""A log and its leader without a socket, for readers that are to meet every kind of log: what it
answers is decided by the log and by a list of faults, nothing by time.
"""

import os
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Self

from storage_engine.client.cluster import EARLIEST
from storage_engine.client.metadata import Leader
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.metrics import ClientFigures
from storage_engine.protocol.apis.fetch import FetchPartitionResponse, FetchRequest, FetchResponse
from storage_engine.protocol.records.record_batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    iter_headers,
    read_header,
    seal,
)
from storage_engine.tests.client.support.batches import numbered_batch


class MemoryLog:
    """Batches with gaps between them; a transaction lasts until its producer's next marker."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker)"""
        self._open: dict[int, int] = {}

    @property
    def last_offset(self) -> int:
        """Of the last batch; 0 when there is none."""
        return read_header(self.batches[-1]).last_offset if self.batches else 0

    def data(self, producer_id: int, record_count: int, padding: int) -> None:
        if producer_id >= 0:
            self._open.setdefault(producer_id, self.end_offset)
        self._append(producer_id, record_count, padding)

    def gap(self, offsets: int) -> None:
        self.end_offset += offsets

    def end(self, producer_id: int, *, abort: bool) -> None:
        first = self._open.pop(producer_id, None)
        if first is None:
            return
        if abort:
            self.aborted.append((producer_id, first, self.end_offset))
        self._append(producer_id, 1, 0, control=True)

    def end_all(self) -> None:
        for producer_id in list(self._open):
            self.end(producer_id, abort=True)

    def _append(
        self, producer_id: int, record_count: int, padding: int, *, control: bool = False
    ) -> None:
        batch = numbered_batch(
            self.end_offset,
            record_count=record_count,
            padding=padding,
            base_offset=self.end_offset,
        ).data
        header = read_header(batch)
        attributes = TRANSACTIONAL_BIT if producer_id >= 0 else 0
        attributes |= CONTROL_BIT if control else 0
        seal(batch, 0, header._replace(producer_id=producer_id, attributes=attributes))
        self.batches.append(bytes(batch))
        self.end_offset += record_count

    def committed_within(self, start_offset: int, end_offset: int) -> list[int]:
        """Base offsets of all batches with records there that a reader of committed ones is to
        see."""
        found = []
        for batch in self.batches:
            header = read_header(batch)
            of_aborted = any(
                header.producer_id == producer_id and first <= header.base_offset <= marker
                for producer_id, first, marker in self.aborted
            )
            inside = header.last_offset >= start_offset and header.base_offset < end_offset
            if inside and not header.is_control and not of_aborted:
                found.append(header.base_offset)
        return found

    def answer(self, request: FetchRequest) -> FetchPartitionResponse:
        """As Kafka's leader: whole batches, the last one cut where the limit is."""
        (asked,) = request.partitions
        found = bytearray()
        last_offset = -1
        for batch in self.batches:
            header = read_header(batch)
            if header.last_offset < asked.fetch_offset:
                continue
            if found and len(found) + len(batch) > asked.partition_max_bytes:
                found += batch[: asked.partition_max_bytes - len(found)]
                break
            found += batch
            last_offset = header.last_offset
        aborted = [
            (producer_id, first)
            for producer_id, first, marker in self.aborted
            if marker >= asked.fetch_offset and first <= last_offset
        ]
        return FetchPartitionResponse(
            asked.topic,
            asked.partition,
            high_watermark=self.end_offset,
            last_stable_offset=self.end_offset,
            log_start_offset=0,
            aborted_transactions=aborted,
            records=memoryview(bytes(found)) if found else None,
        )


class MemoryLeader:
    """In place of a `Cluster`: one broker, every fetch of which meets the next of `faults`: None,
    "lost", "late" (nothing there yet) or an error."""

    deadline_ms = 60_000
    request_timeout_ms = 60_000
    unknown_topic_wait_ms = 60_000

    def __init__(self, log: MemoryLog, faults: Iterable[str | ErrorCode | None] = ()) -> None:
        self.log = log
        self.figures = ClientFigures()
        self.log_start_offset = 0
        self.most_in_flight = 0
        self.requests: list[FetchRequest] = []
        self._faults = deque(faults)
        self._descriptor = os.open(os.devnull, os.O_RDONLY)
        self._open: set[_Connection] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        assert not self._open, "a connection was neither given back nor closed"

    def known_leader(self, tp: TopicPartition) -> Leader:
        return Leader(1, 0)

    def told_leader(self, tp: TopicPartition, leader: Any, nodes: Any) -> bool:
        return False

    def has_moved(self, partitions: Any, broker_id: int, connection: Any) -> bool:
        return False

    def has(self, tp: TopicPartition) -> bool:
        return True

    def refresh(self, topics: Any = None, deadline: Any = None) -> None:
        pass

    def list_offsets(self, asked: dict[TopicPartition, int], **_: Any) -> dict[TopicPartition, int]:
        return {
            tp: self.log_start_offset if at == EARLIEST else self.log.end_offset
            for tp, at in asked.items()
        }

    def take(self, broker_id: int, deadline: Any) -> "_Connection":
        connection = _Connection(self, self._descriptor)
        self._open.add(connection)
        return connection

    def give_back(self, connection: "_Connection") -> None:
        self._open.discard(connection)

    def serve(self, request: FetchRequest) -> FetchResponse:
        fault = self._faults.popleft() if self._faults else None
        if fault == "lost":
            raise KafkaError("the connection is lost", ErrorCode.NETWORK_EXCEPTION)
        answer = self.log.answer(request)
        if isinstance(fault, ErrorCode):
            answer = answer._replace(error_code=int(fault), records=None)
        elif fault == "late":
            answer = answer._replace(records=None)
        return FetchResponse([answer])


class _Connection:
    """Answers in the order of the requests."""

    name = "leader:1"
    has_buffered = True

    def __init__(self, leader: MemoryLeader, descriptor: int) -> None:
        self._leader = leader
        self._descriptor = descriptor
        self._sent: deque[FetchRequest] = deque()

    def fileno(self) -> int:
        return self._descriptor

    def version_for(self, api: Any) -> int:
        return int(api.max_version)

    def send(self, api: Any, request: FetchRequest, deadline: Any) -> None:
        self._sent.append(request)
        self._leader.requests.append(request)
        self._leader.most_in_flight = max(self._leader.most_in_flight, len(self._sent))

    def receive(self, deadline: Any) -> FetchResponse:
        return self._leader.serve(self._sent.popleft())

    def close(self) -> None:
        self._leader.give_back(self)


def base_offsets(pieces: Iterable[memoryview]) -> Sequence[int]:
    """Of all batches with records."""
    return [
        header.base_offset
        for piece in pieces
        for _, header in iter_headers(piece)
        if not header.is_control
    ]
