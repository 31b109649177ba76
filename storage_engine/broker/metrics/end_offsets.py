"""The end offsets of partitions without a replica here, for the lag of groups that commit to them.

Their leaders are asked while scrapes come, one request a broker at a time; a scrape reports their
last answers. Source: R-MET1.
"""

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import Clock, Endpoint, TransportError
from storage_engine.protocol.apis.list_offsets import (
    API,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from storage_engine.protocol.transport import Transport

CHANNEL = "metrics"
VERSION = 5
TIMEOUT_MS = 5_000
ASK_MS = 5_000
"""The least time between two requests to the leaders."""
KEPT_MS = 60_000
"""The age from which an end offset is no longer reported."""
PARTITIONS_MAX = 1_000
"""The most partitions of one request; the others come with the next."""
LATEST = -1


class EndOffsets:
    """The high watermarks in the leaders' last answers."""

    def __init__(self, metadata: MetadataCache, transport: Transport, clock: Clock) -> None:
        self._metadata = metadata
        self._transport = transport
        self._clock = clock
        self._known: dict[TopicPartition, tuple[int, int]] = {}
        """(offset, monotonic ms of the answer)"""
        self._wanted: dict[TopicPartition, None] = {}
        self._asked: set[BrokerId] = set()
        """Brokers with a request under way."""
        self._asked_ms: int | None = None

    def of(self, tp: TopicPartition) -> int | None:
        """The last known end, None if too old; the next `ask` asks the leader for it."""
        self._wanted[tp] = None
        offset, heard_ms = self._known.get(tp, (0, None))
        if heard_ms is None or self._clock.monotonic_ms() - heard_ms > KEPT_MS:
            return None
        return offset

    def ask(self) -> None:
        """Ask for the partitions wanted since the last call, and forget all others."""
        now_ms = self._clock.monotonic_ms()
        if self._asked_ms is not None and now_ms - self._asked_ms < ASK_MS:
            return
        self._asked_ms = now_ms
        wanted, self._wanted = self._wanted, {}
        self._known = {tp: known for tp, known in self._known.items() if tp in wanted}
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        # Partitions with no answer, or the oldest one, come first.
        for tp in sorted(wanted, key=lambda tp: self._known.get(tp, (0, 0))[1]):
            state = (self._metadata.partitions(tp.topic) or {}).get(tp.partition)
            if state is not None and len(by_leader.get(state.leader, ())) < PARTITIONS_MAX:
                by_leader.setdefault(state.leader, []).append(tp)
        for leader, partitions in by_leader.items():
            broker = self._metadata.brokers.get(leader)
            if broker is not None and leader not in self._asked:
                endpoint = Endpoint(broker_id=leader, host=broker.host, port=broker.port)
                self._ask(endpoint, partitions)

    def _ask(self, leader: Endpoint, partitions: list[TopicPartition]) -> None:
        asked = BrokerId(leader.broker_id)
        self._asked.add(asked)

        def on_reply(reply: ListOffsetsResponse | TransportError) -> None:
            self._asked.discard(asked)
            if not isinstance(reply, TransportError):
                self._heard(reply)

        request = ListOffsetsRequest([ListOffsetsPartition(*tp, LATEST) for tp in partitions])
        self._transport.request(
            leader, CHANNEL, API, VERSION, request, timeout_ms=TIMEOUT_MS, on_reply=on_reply
        )

    def _heard(self, reply: ListOffsetsResponse) -> None:
        now_ms = self._clock.monotonic_ms()
        for answer in reply.partitions:
            if answer.error_code == ErrorCode.NONE and answer.offset >= 0:
                tp = TopicPartition(answer.topic, answer.partition)
                self._known[tp] = answer.offset, now_ms
