"""Fetches bytes that are not in the page cache: only the request that needs them waits for the
disk.

    read -> all in the page cache -> answer at once
         -> cold -> a thread brings the bytes into the page cache -> read again -> answer

The event loop never waits for a disk to read what a fetch sends. A cold fetch is read again when
its bytes have come, so that its answer is up to date: the present high watermark, another leader,
or a failed log dir. The answers of its connection keep their order. Source: R-NET1, R-LOG5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.fetch_reads import FetchRead, PartitionReader
from storage_engine.broker.requests.typed_reads import is_cold_slice
from storage_engine.broker.shared_threads import SharedThreads
from storage_engine.broker.unexpected import guarded
from storage_engine.core.errors import LogBusyError, LogStorageError
from storage_engine.core.fair_queue import Share
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background
from storage_engine.log.files.segment_files import COPY_MAX_BYTES, LoadJob
from storage_engine.log.partition_log import PartitionLog
from storage_engine.net.limits import SMALL_WRITE_BYTES
from storage_engine.protocol.apis.fetch import FetchRequest

LOADS_AT_ONCE, LOADS_EACH = 3, 2
"""The most loads at a time: of all fetches, and of one principal's. The others wait; the server
limits the number of unanswered requests."""

MOST_LOADS = 4
"""The most loads of one fetch: for the beginning of its bytes, for their end, and for the bytes;
two mostly suffice. Bytes that are cold even then are left to the client's next fetch, or sent from
the disk if there are no others: otherwise a machine without memory would load for ever."""

FILES_PER_LOAD = 16
"""The most files of one load: each is opened once more, and a fetch may name thousands."""

COLD_FETCH_MAX_BYTES = 4 << 20
"""A cold fetch returns no more than this, or one batch: so waiting fetches take turns, and the page
cache is not filled with bytes that a reader may receive much later."""

assert COPY_MAX_BYTES >= SMALL_WRITE_BYTES, "what a connection joins must not be a mapping"

_Jobs = list[tuple[HostedPartition, PartitionLog, LoadJob]]


@dataclass(slots=True, kw_only=True)
class _ColdFetch:
    request: FetchRequest
    share: Share
    respond: Callable[[FetchRead], None]
    gone: Callable[[], bool]
    loads: int = 0
    loaded_bytes: int = 0


class ColdReads:
    """Answers fetches once their bytes are in the page cache."""

    def __init__(
        self, background: Background, *, reader: PartitionReader, replicas: ReplicaManager
    ) -> None:
        self._threads = SharedThreads(background, at_once=LOADS_AT_ONCE, each=LOADS_EACH)
        self._reader = reader
        self._replicas = replicas
        self.loads = 0
        """Loads of cold fetches by a thread so far."""

    def answer(
        self,
        request: FetchRequest,
        read: FetchRead,
        share: Share,
        respond: Callable[[FetchRead], None],
        gone: Callable[[], bool],
    ) -> None:
        """Respond with `read`, which was just made, or a newer one when its bytes are cold.

        `gone`: whether the client's connection is closed; nothing is loaded for it then.
        """
        if not _is_cold(read):
            respond(read)
            return
        smaller = request._replace(max_bytes=min(request.max_bytes, COLD_FETCH_MAX_BYTES))
        fetch = _ColdFetch(request=smaller, share=share, respond=respond, gone=gone)
        self._threads.when_its_turn(share, partial(self._go_on, fetch))

    def _go_on(self, fetch: _ColdFetch) -> None:
        """Go on with a fetch that has a thread, until it is answered or its client is gone."""
        if fetch.gone() or guarded("a fetch from the disk", self._look, fetch) is not True:
            self._threads.ended(fetch.share, fetch.loaded_bytes)

    def _look(self, fetch: _ColdFetch) -> bool:
        """Read again; load cold bytes, or else respond. Return whether bytes are loaded."""
        while True:
            read = self._reader.read(fetch.request)
            if not _is_cold(read):
                fetch.respond(read)
                return False
            if fetch.loads == MOST_LOADS:
                if not _keep_warm(read):
                    read = self._reader.read(fetch.request, wait=True)
                fetch.respond(read)
                return False
            jobs, are_busy = self._jobs(read)
            if jobs:
                self._load(fetch, jobs)
                return True
            if are_busy:
                # The process lacks descriptors. The loop must not wait for the disk, so cold bytes
                # are left to the client's next fetch.
                _keep_warm(read)
                fetch.respond(read)
                return False
            # Their logs have failed just now, which the next read reports.

    def _jobs(self, read: FetchRead) -> tuple[_Jobs, bool]:
        """The jobs that load the bytes of a read, and whether some can't have a job now. Logs that
        can never have one have failed."""
        makers: list[tuple[HostedPartition, Callable[[], LoadJob]]] = [
            (partition, partial(cold.load_job, max_bytes))
            for partition, cold, max_bytes in read.cold
        ]
        for answer in read.partitions:
            if is_cold_slice(answer.records):
                partition = self._replicas.get(TopicPartition(answer.topic, answer.partition))
                assert partition is not None, "it was read in this turn"
                makers.append((partition, answer.records.load_job))
        jobs: _Jobs = []
        are_busy = False
        for partition, make in makers[:FILES_PER_LOAD]:
            try:
                jobs.append((partition, partition.log, make()))
            except LogStorageError as failure:
                are_busy = are_busy or isinstance(failure, LogBusyError)
                partition.fail(failure)
        return jobs, are_busy

    def _load(self, fetch: _ColdFetch, jobs: _Jobs) -> None:
        def run() -> list[LogStorageError | None]:
            return [job.run() for _, _, job in jobs]

        def done(failures: list[LogStorageError | None]) -> None:
            for (partition, replica_log, _), failure in zip(jobs, failures, strict=True):
                if failure is not None:
                    guarded("a failed read", partition.fail, failure, replica_log)
            self._go_on(fetch)

        self.loads += 1
        fetch.loads += 1
        fetch.loaded_bytes += sum(job.size for _, _, job in jobs)
        self._threads.background.submit(run, done, lambda _error: self._go_on(fetch))


def _is_cold(read: FetchRead) -> bool:
    return bool(read.cold) or any(is_cold_slice(answer.records) for answer in read.partitions)


def _keep_warm(read: FetchRead) -> bool:
    """Leave out cold records; return False when nothing is left."""
    read.partitions = [
        answer._replace(records=None) if is_cold_slice(answer.records) else answer
        for answer in read.partitions
    ]
    return any(answer.records is not None for answer in read.partitions)
