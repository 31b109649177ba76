"""Fetches records that are damaged here from other replicas. It takes only what a replica holds
below its high watermark, and only after all checks.

The request is a Fetch with replica id -2, which Kafka has for its tool that compares replicas: any
replica answers it, as to a consumer, and it moves no follower's state. The leader is asked first;
after a replica whose bytes are damaged too, the next one is asked. Source: R-LOG8.
"""

from collections.abc import Callable, Sequence

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import CorruptRecordError, ErrorCode
from storage_engine.core.ports import Endpoint, TransportError
from storage_engine.log.cleaning.segment_scrub import BadRange, Replacements, SegmentScrub
from storage_engine.protocol.apis.fetch import (
    ANY_REPLICA_ID,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.transport import Transport
from storage_engine.protocol.typed.projection import WANT_STORED, TypedWant

CHANNEL = "repair"
FETCH_VERSION = 12
ANSWER_BYTES = 1 << 20
"""Asked for at a time: written on the event loop, like an append."""

TIMEOUT_MS = 30_000


class RepairFetch:
    """Fills the replacements of one segment."""

    def __init__(
        self,
        partition: HostedPartition,
        scrub: SegmentScrub,
        replacements: Replacements,
        sources: Sequence[Endpoint],
        *,
        transport: Transport,
        on_done: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """`sources` in the order in which they are asked; not empty. One of the two callbacks comes
        once, with why nobody could help.
        """
        self._partition = partition
        self._ranges: list[BadRange] = scrub.bad_ranges
        self._replacements = replacements
        self._sources = sources
        self._transport = transport
        self._on_done = on_done
        self._on_failed = on_failed
        self._range = 0
        self._source = 0
        self._reasons: list[str] = []
        self._next_offset = self._start()

    def start(self) -> None:
        """Requests the first range, or the next piece of the present one."""
        while self._next_offset >= self._ranges[self._range].end_offset:
            self._replacements.end_range()
            self._range += 1
            self._source = 0
            if self._range == len(self._ranges):
                self._on_done()
                return
            self._next_offset = self._start()
        tp = self._partition.topic_partition
        self._transport.request(
            self._sources[self._source],
            CHANNEL,
            FETCH,
            FETCH_VERSION,
            FetchRequest(
                replica_id=ANY_REPLICA_ID,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=ANSWER_BYTES,
                partitions=[
                    FetchPartition(
                        tp.topic,
                        tp.partition,
                        self._next_offset,
                        ANSWER_BYTES,
                        want=TypedWant(WANT_STORED),
                    )
                ],
            ),
            timeout_ms=TIMEOUT_MS,
            on_reply=self._take,
        )

    def _start(self) -> int:
        """Records below the log's start are gone for readers, here and elsewhere."""
        return max(self._ranges[self._range].start_offset, self._partition.log.log_start_offset)

    def _take(self, reply: FetchResponse | TransportError) -> None:
        if isinstance(reply, TransportError):
            self._ask_another(reply.reason)
            return
        answer = self._own(reply)
        code = reply.error_code or (answer.error_code if answer is not None else 0)
        if code:
            self._ask_another(ErrorCode.of(code).name)
            return
        if answer is None:
            self._ask_another("it answered for another partition")
            return
        records = answer.records
        bad = self._ranges[self._range]
        try:
            view = memoryview(records) if records else memoryview(b"")  # type: ignore[arg-type]
            reached = self._replacements.add(bad, self._next_offset, view)
        except CorruptRecordError as error:
            self._ask_another(str(error))
            return
        except OSError as error:
            self._on_failed(f"the good bytes can't be stored: {error}")
            return
        if reached <= self._next_offset:
            self._ask_another(f"it has nothing at offset {self._next_offset} to show yet")
            return
        self._next_offset = reached
        self.start()

    def _own(self, reply: FetchResponse) -> FetchPartitionResponse | None:
        tp = self._partition.topic_partition
        for answer in reply.partitions:
            if (answer.topic, answer.partition) == (tp.topic, tp.partition):
                return answer
        return None

    def _ask_another(self, reason: str) -> None:
        self._reasons.append(f"broker {self._sources[self._source].broker_id}: {reason}")
        self._source += 1
        if self._source == len(self._sources):
            self._on_failed("; ".join(self._reasons))
            return
        self._replacements.drop_range()
        self._next_offset = self._start()
        self.start()
