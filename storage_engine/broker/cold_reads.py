"""Fetches of bytes that are not in the page cache: they wait for the disk, and nobody else does.

    read -> all in the page cache -> answer at once
         -> cold -> a thread brings the bytes into the page cache -> read again -> answer

Rule: the event loop never waits for a disk to read what a fetch sends. A cold fetch is read anew
when its bytes have come, so that it tells what is true then: the present high watermark, another
leader, or a failed folder. The answers of its connection keep their order. Source: R-NET1, R-LOG5.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage_engine.broker.fetch_reads import FetchRead, FetchReader
from storage_engine.broker.hosted_partition import HostedPartition
from storage_engine.broker.replica_manager import ReplicaManager
from storage_engine.core.errors import LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background
from storage_engine.log.load_job import LoadJob
from storage_engine.log.segment_slice import SegmentSlice
from storage_engine.protocol.apis.fetch import FetchRequest

LOADS_AT_ONCE = 2
"""Of all fetches together: half of the background threads, so that flushes always find one. The
others wait in the order of their arrival; the server bounds how many requests may be unanswered."""

MOST_LOADS = 2
"""Of one fetch. What is evicted again so soon is sent from the disk: else a machine without memory
would load for ever and answer nobody."""


_ColdSlice = tuple[TopicPartition, SegmentSlice]


@dataclass(slots=True, kw_only=True)
class _ColdFetch:
    request: FetchRequest
    respond: Callable[[FetchRead], None]
    gone: Callable[[], bool]
    loads: int = 0


class ColdReads:
    """Answers fetches once their bytes are in the page cache."""

    def __init__(
        self, background: Background, *, reader: FetchReader, replicas: ReplicaManager
    ) -> None:
        self._background = background
        self._reader = reader
        self._replicas = replicas
        self._waiting: deque[_ColdFetch] = deque()
        self._under_way = 0
        self.loads = 0
        """Cold fetches that a thread has worked for so far."""

    def answer(
        self,
        request: FetchRequest,
        read: FetchRead,
        respond: Callable[[FetchRead], None],
        gone: Callable[[], bool],
    ) -> None:
        """Respond with `read`, which was just made, or a newer one when its bytes are cold.

        `gone`: whether the client's connection is closed; nothing is loaded for it then.
        """
        if not _cold_slices(read):
            respond(read)
            return
        self._waiting.append(_ColdFetch(request=request, respond=respond, gone=gone))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._under_way < LOADS_AT_ONCE:
            fetch = self._waiting.popleft()
            if not fetch.gone():
                self._look(fetch)

    def _look(self, fetch: _ColdFetch) -> None:
        """Read as things are now; load what is cold, else respond."""
        while True:
            read = self._reader.read(fetch.request)
            cold = _cold_slices(read) if fetch.loads < MOST_LOADS else []
            if not cold:
                fetch.respond(read)
                return
            jobs = self._jobs(cold)
            if jobs:
                self._load(fetch, jobs)
                return
            # Their logs have failed just now, which the next read tells.

    def _jobs(self, cold: Sequence[_ColdSlice]) -> list[tuple[HostedPartition, LoadJob]]:
        jobs: list[tuple[HostedPartition, LoadJob]] = []
        for tp, records in cold:
            partition = self._replicas.get(tp)
            assert partition is not None, "it was read in this turn"
            try:
                jobs.append((partition, records.load_job()))
            except LogStorageError as failure:
                self._replicas.fail(partition, failure)
        return jobs

    def _load(self, fetch: _ColdFetch, jobs: list[tuple[HostedPartition, LoadJob]]) -> None:
        def run() -> list[LogStorageError | None]:
            return [job.run() for _, job in jobs]

        def done(failures: list[LogStorageError | None]) -> None:
            for (partition, _), failure in zip(jobs, failures, strict=True):
                if failure is not None:
                    self._replicas.fail(partition, failure)
            ended()

        def ended() -> None:
            self._under_way -= 1
            if not fetch.gone():
                self._look(fetch)
            self._begin()

        self.loads += 1
        fetch.loads += 1
        self._under_way += 1
        self._background.submit(run, done, lambda _error: ended())


def _cold_slices(read: FetchRead) -> list[_ColdSlice]:
    """What has to be loaded before it is sent."""
    cold: list[_ColdSlice] = []
    for answer in read.partitions:
        records = answer.records
        if isinstance(records, SegmentSlice) and not records.is_warm():
            cold.append((TopicPartition(answer.topic, answer.partition), records))
    return cold
