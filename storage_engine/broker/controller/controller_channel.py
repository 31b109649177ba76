"""Carries the deliveries of the controller to brokers.

A delivery counts as made only when the broker has answered all of its requests; otherwise it is
reported as failed after a pause. An exception here counts as a failure, too: a delivery that is
neither made nor failed would be under way for ever, and its broker would get no other. A broker
that answers STALE_CONTROLLER_EPOCH knows a newer controller, so that this one ends. Source: R-CTL1,
R-CTL3, R-CTL6.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial

from storage_engine.broker import unexpected
from storage_engine.broker.controller.delivery_requests import (
    ORDER_VERSION,
    MetadataParts,
    OrderRequest,
    OrderSender,
    rounds_of,
    without_unsendable,
)
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.control.controller_events import (
    DeliveryFailed,
    DeliveryMade,
    OrderDelivery,
    ReplicasFailed,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId, ControllerEpoch, TopicPartition
from storage_engine.core.ports import Endpoint, Scheduler, TransportError
from storage_engine.protocol.apis import leader_and_isr, stop_replica, update_metadata
from storage_engine.protocol.transport import Transport
from storage_engine.zookeeper.flow import Flow, Flows, pause

log = logging.getLogger(__name__)

_OfReplicas = leader_and_isr.LeaderAndIsrResponse | stop_replica.StopReplicaResponse
OrderReply = update_metadata.UpdateMetadataResponse | _OfReplicas | TransportError

CHANNEL = "controller"
TIMEOUT_MS = 30_000
ENCODED_PER_TURN = 1_000
"""Partitions whose metadata are encoded in one turn of the loop: some 15 ms. A cluster of 10,000
took a quarter of a second in one turn."""

RETRY_MS = 200
RETRY_MAX_MS = 1_000
"""The longest pause before a failed delivery is owed again, after many failures in a row."""


class ControllerChannel:
    """Sends deliveries for one controller epoch."""

    def __init__(
        self,
        *,
        controller_id: BrokerId,
        controller_epoch: ControllerEpoch,
        transport: Transport,
        scheduler: Scheduler,
        flows: Flows,
        report: Callable[[DeliveryMade | DeliveryFailed | ReplicasFailed], None],
        on_replaced: Callable[[], None],
    ) -> None:
        self._sender = OrderSender(controller_id, controller_epoch)
        self._transport = transport
        self._scheduler = scheduler
        self._flows = flows
        self._report = report
        self._on_replaced = on_replaced
        self._metadata_parts = MetadataParts()
        self._failures: dict[BrokerId, int] = {}
        """Broker -> the number of deliveries that have failed in a row."""

    def send(self, broker: BrokerInfo, delivery: OrderDelivery) -> None:
        """Send all requests of a delivery on one connection: pipelined, but parts of an order one
        after the other."""
        self._flows.start(self._deliver(broker, delivery))

    def _deliver(self, broker: BrokerInfo, delivery: OrderDelivery) -> Flow[None]:
        endpoint = Endpoint(broker_id=broker.broker_id, host=broker.host, port=broker.port)
        try:
            yield from self._encode(delivery)
        except Exception as error:  # noqa: BLE001 - whatever it is, the delivery has failed
            self._isolate(broker, delivery, error)
            return
        rounds = rounds_of(self._sender, delivery, self._metadata_parts)
        outcome = _Outcome()
        while outcome.is_good:
            replies = yield partial(self._send_round, endpoint, rounds)
            if isinstance(replies, Exception):
                # The requests before the one that could not be sent may be on their way.
                self._transport.disconnect(endpoint, CHANNEL)
                self._isolate(broker, delivery, replies)
                return
            if not replies:
                break
            for reply in replies:
                try:
                    outcome.note(reply)
                except Exception as error:  # noqa: BLE001 - whatever it is, the delivery has failed
                    outcome.failure = "its answer can't be read"
                    unexpected.report(f"answer of broker {broker.broker_id} to a delivery", error)
        self._end(broker, delivery, outcome)

    def _encode(self, delivery: OrderDelivery) -> Flow[None]:
        """Encode the metadata in turns. Deliveries with the same content share the work; if other
        content comes in between, the rest is encoded when it is sent."""
        for part in self._metadata_parts.of(delivery):
            while not part.partitions.encode_more(ENCODED_PER_TURN):
                yield from pause(self._scheduler, 0)

    def _send_round(
        self,
        endpoint: Endpoint,
        rounds: Iterator[list[OrderRequest]],
        done: Callable[[list[OrderReply] | Exception], None],
    ) -> None:
        """`done` receives the replies to the next round, an empty list when there is none left, or
        the error that kept it from being sent."""
        replies: list[OrderReply] = []

        def on_reply(reply: OrderReply) -> None:
            replies.append(reply)
            if len(replies) == len(requests):
                done(replies)

        try:
            requests = next(rounds, [])
            for spec, message in requests:
                self._transport.request(
                    endpoint, CHANNEL, spec, ORDER_VERSION, message,
                    timeout_ms=TIMEOUT_MS, on_reply=on_reply,
                )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - whatever it is, the delivery has failed
            done(error)
            return
        if not requests:
            done(replies)

    def _isolate(self, broker: BrokerInfo, delivery: OrderDelivery, error: Exception) -> None:
        """Send the delivery again without its unsendable parts; fail it when none are found."""
        sound, left_out = without_unsendable(self._sender, delivery)
        unexpected.report(
            f"delivery to broker {broker.broker_id} not sent, left out: "
            f"{', '.join(left_out) or 'nothing'}",
            error,
        )
        if left_out:
            self._scheduler.call_later(RETRY_MS, lambda: self.send(broker, sound))
        else:
            self._failed(broker, delivery)

    def _end(self, broker: BrokerInfo, delivery: OrderDelivery, outcome: "_Outcome") -> None:
        if outcome.replaced:
            self._on_replaced()
            return
        if outcome.failed_replicas:
            self._report_failed(broker, delivery, outcome.failed_replicas)
        if outcome.failure is None:
            self._failures.pop(broker.broker_id, None)
            self._report(DeliveryMade(broker=broker.broker_id, delivery=delivery))
        else:
            log.info("delivery to broker %d failed: %s", broker.broker_id, outcome.failure)
            self._failed(broker, delivery)

    def _failed(self, broker: BrokerInfo, delivery: OrderDelivery) -> None:
        """Report the failure after a pause, which grows while one delivery after another fails."""
        failures = self._failures[broker.broker_id] = self._failures.get(broker.broker_id, 0) + 1
        pause_ms = min(RETRY_MS << min(failures - 1, 10), RETRY_MAX_MS)
        failed = DeliveryFailed(broker=broker.broker_id, delivery=delivery)
        self._scheduler.call_later(pause_ms, lambda: self._report(failed))

    def _report_failed(
        self, broker: BrokerInfo, delivery: OrderDelivery, partitions: list[TopicPartition]
    ) -> None:
        names = ", ".join(map(str, partitions))
        log.warning("broker %d can't serve partitions=%s", broker.broker_id, names)
        self._report(
            ReplicasFailed(
                broker=broker.broker_id,
                broker_epoch=delivery.broker_epoch,
                partitions=tuple(partitions),
            )
        )


class _Outcome:
    """Sums up the answers to one delivery."""

    __slots__ = ("failed_replicas", "failure", "replaced")

    def __init__(self) -> None:
        self.failure: str | None = None
        self.failed_replicas: list[TopicPartition] = []
        """The replicas that the broker can't lead, follow or delete, because their log dir
        failed."""
        self.replaced = False

    @property
    def is_good(self) -> bool:
        """Whether the next round may be sent."""
        return self.failure is None and not self.replaced

    def note(self, reply: OrderReply) -> None:
        if isinstance(reply, TransportError):
            self.failure = reply.reason
            return
        code = ErrorCode.of(reply.error_code)
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self.replaced = True
        elif code is not ErrorCode.NONE:
            self.failure = code.name
        elif isinstance(reply, _OfReplicas):
            self._note_partitions(reply)

    def _note_partitions(self, reply: _OfReplicas) -> None:
        for item in reply.partitions:
            code = ErrorCode.of(item.error_code)
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.failed_replicas.append(TopicPartition(item.topic, item.partition))
            if code and isinstance(reply, stop_replica.StopReplicaResponse):
                # Only what is deleted counts as deleted. (A replica that can't be led or followed
                # is sent again with its next change, not for ever.)
                self.failure = f"{item.topic}-{item.partition} not deleted: {code.name}"
