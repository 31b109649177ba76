"""Makes the leaders of partitions write the markers of one coordinator.

In each turn of the event loop all waiting markers are sent to the present leaders, in one request
for each broker. ZooKeeper is asked whether a topic is gone: this broker's view may be behind, and a
marker that is never written holds the last stable offset for ever. A topic in deletion counts as
gone once the controller's metadata has no such topic: its transactions must not wait until the last
broker with a replica is back. Before that the request may be one that the controller refuses.
Source: KIP-98.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.topic_lookup import FoundTopic, TopicLookup
from storage_engine.broker.transactions.marker_writes import (
    MarkerTarget,
    MarkerWrites,
    codes_of_response,
    request_of_targets,
)
from storage_engine.broker.unexpected import FAILED, guarded
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import Endpoint, Scheduler, TransportError
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.core.transactions.transaction_events import SendMarkers
from storage_engine.protocol.messages.write_txn_markers import API, WriteTxnMarkersResponse
from storage_engine.protocol.transport import Transport

log = logging.getLogger(__name__)

CHANNEL = "markers"
RETRY_MS = 100
"""The pause before another try: the new leader is mostly known by then."""
TIMEOUT_MS = 15_000
"""The timeout of a request: longer than a leader waits for its followers."""
TARGETS_PER_REQUEST = 5_000
"""The most markers of one request: the leader appends them in one turn of its event loop."""

WRITTEN = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
"""The codes of a written marker: where a newer epoch is known, a marker has come since."""

OnWritten = Callable[[int, int, frozenset[TopicPartition]], None]
"""Called with (producer id, epoch, partitions) whose markers are written, or that are gone."""


@dataclass(slots=True)
class _Ending:
    """The end of one transaction. Invariant: `under_way` is part of `left`."""

    marker: TransactionMarker
    """Its identity distinguishes the targets of this end from those of the producer's next one."""
    left: set[TopicPartition]
    under_way: set[TopicPartition] = field(default_factory=set)


Producer = tuple[int, int]
"""Id and epoch."""


class MarkerSender:
    """Sends the markers of one coordinator until the coordinator ends."""

    def __init__(
        self,
        *,
        coordinator_epoch: int,
        broker_id: int,
        metadata: MetadataCache,
        topics: TopicLookup,
        transport: Transport,
        scheduler: Scheduler,
        writes: MarkerWrites,
        on_written: OnWritten,
    ) -> None:
        self.coordinator_epoch = coordinator_epoch
        """The epoch that markers carry from now on."""
        self._broker_id = broker_id
        self._metadata = metadata
        self._topics = topics
        self._transport = transport
        self._scheduler = scheduler
        self._writes = writes
        self._on_written = on_written
        self._endings: dict[Producer, _Ending] = {}
        self._looking_up: set[str] = set()
        self._pump_is_due = False
        self._retry_is_due = False
        self._closed = False

    def send(self, order: SendMarkers) -> None:
        self._endings[order.producer_id, order.producer_epoch] = _Ending(
            marker=TransactionMarker(order.commits, self.coordinator_epoch, order.has_own_epoch),
            left=set(order.partitions),
        )
        self._pump_soon()

    def close(self) -> None:
        """Send nothing more, and ignore later answers."""
        self._closed = True
        self._endings.clear()

    def _pump_soon(self) -> None:
        if not self._pump_is_due and not self._closed:
            self._pump_is_due = True
            self._scheduler.call_soon(self._pump)

    def _retry_later(self) -> None:
        if not self._retry_is_due and not self._closed:
            self._retry_is_due = True
            self._scheduler.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._retry_is_due = False
        self._pump_soon()

    def _pump(self) -> None:
        self._pump_is_due = False
        by_leader: dict[BrokerInfo, list[MarkerTarget]] = {}
        homeless = False
        for (producer_id, epoch), ending in self._endings.items():
            for tp in sorted(ending.left - ending.under_way):
                leader = self._leader_of(tp)
                if leader is None:
                    homeless = True
                else:
                    target = MarkerTarget(producer_id, epoch, ending.marker, tp)
                    by_leader.setdefault(leader, []).append(target)
        for leader, targets in by_leader.items():
            for start in range(0, len(targets), TARGETS_PER_REQUEST):
                self._send(leader, targets[start : start + TARGETS_PER_REQUEST])
        if homeless:
            self._retry_later()

    def _leader_of(self, tp: TopicPartition) -> BrokerInfo | None:
        known = (self._metadata.partitions(tp.topic) or {}).get(tp.partition)
        if known is None:
            self._look_up(tp.topic)
            return None
        return self._metadata.brokers.get(BrokerId(known.leader))

    def _send(self, leader: BrokerInfo, targets: list[MarkerTarget]) -> None:
        if self._closed:
            return
        for target in targets:
            self._endings[target.producer_id, target.producer_epoch].under_way.add(target.partition)
        if guarded("the sending of markers", self._hand_over, leader, targets) is FAILED:
            # Markers that were sent already are sent again, which is harmless.
            self._answered(targets, [ErrorCode.UNKNOWN_SERVER_ERROR] * len(targets))

    def _hand_over(self, leader: BrokerInfo, targets: list[MarkerTarget]) -> None:
        if leader.broker_id == self._broker_id:
            self._writes.write(targets, lambda codes: self._answered(targets, codes))
            return

        def on_reply(reply: WriteTxnMarkersResponse | TransportError) -> None:
            codes = [ErrorCode.UNKNOWN_SERVER_ERROR] * len(targets)
            if isinstance(reply, TransportError):
                log.info("markers not written broker=%d: %s", leader.broker_id, reply.reason)
            else:
                read = guarded("an answer about markers", codes_of_response, reply, targets)
                codes = codes if read is FAILED else read
            self._answered(targets, codes)

        self._transport.request(
            Endpoint(broker_id=leader.broker_id, host=leader.host, port=leader.port),
            CHANNEL,
            API,
            API.max_version,
            request_of_targets(targets),
            timeout_ms=TIMEOUT_MS,
            on_reply=on_reply,
        )

    def _answered(self, targets: list[MarkerTarget], codes: Iterable[ErrorCode]) -> None:
        written: dict[Producer, set[TopicPartition]] = {}
        again = False
        for target, code in zip(targets, codes, strict=True):
            producer = target.producer_id, target.producer_epoch
            ending = self._endings.get(producer)
            if ending is None or ending.marker is not target.marker:
                # Its topic is gone; the producer's next transaction may have a topic of the same
                # name.
                continue
            ending.under_way.discard(target.partition)
            if code in WRITTEN:
                written.setdefault(producer, set()).add(target.partition)
            else:
                again = True
        for producer, partitions in written.items():
            self._written(producer, partitions)
        if again:
            self._retry_later()

    def _written(self, producer: Producer, partitions: set[TopicPartition]) -> None:
        ending = self._endings.get(producer)
        if ending is None or self._closed:
            return
        ending.left -= partitions
        if not ending.left:
            del self._endings[producer]
        self._on_written(*producer, frozenset(partitions))

    # --- topics that this broker does not know ---

    def _look_up(self, topic: str) -> None:
        if self._metadata.is_initialized and topic not in self._looking_up:
            self._looking_up.add(topic)
            self._topics.look_up(topic, lambda found: self._looked_up(topic, found))

    def _looked_up(self, topic: str, found: FoundTopic | None) -> None:
        self._looking_up.discard(topic)
        if found is None:
            return
        is_going = found.deletion_is_requested and topic not in self._metadata
        there = set() if is_going else set(found.partitions)
        # The topic may have been made anew since ZooKeeper was asked.
        there.update(self._metadata.partitions(topic) or ())
        for producer, ending in list(self._endings.items()):
            gone = {tp for tp in ending.left if tp.topic == topic and tp.partition not in there}
            if gone:
                log.info("no markers for partitions that are no more: %s", sorted(map(str, gone)))
                ending.under_way -= gone
                self._written(producer, gone)
