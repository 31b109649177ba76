"""Carries the deliveries of the controller to brokers, each as UpdateMetadata, LeaderAndIsr and
StopReplica, in this order. No request has more items than a broker accepts: a longer one is sent in
parts, and a full order stays full in them (`full_order`).

A delivery counts as made only when the broker has answered all of its requests; otherwise it is
reported as failed after a pause. An exception here counts as a failure, too: a delivery that is
neither made nor failed would be under way for ever, and its broker would get no other. A broker
that answers STALE_CONTROLLER_EPOCH knows a newer controller, so that this one ends. Source: R-CTL1,
R-CTL3, R-CTL6.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from storage_engine.broker import unexpected
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.control.controller_events import (
    DeliveryFailed,
    DeliveryMade,
    OrderDelivery,
    PartitionLeadership,
    ReplicasFailed,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import NO_EPOCH, BrokerId, ControllerEpoch, TopicPartition
from storage_engine.core.ports import Endpoint, Scheduler, TransportError
from storage_engine.protocol.apis import leader_and_isr, stop_replica, update_metadata
from storage_engine.protocol.apis.spec import MAX_ITEMS, AnyApi
from storage_engine.protocol.framing import encode_request_frame
from storage_engine.protocol.transport import Transport
from storage_engine.zookeeper.flow import Flow, Flows, pause

log = logging.getLogger(__name__)

Item = TypeVar("Item")
_OfReplicas = leader_and_isr.LeaderAndIsrResponse | stop_replica.StopReplicaResponse
OrderReply = update_metadata.UpdateMetadataResponse | _OfReplicas | TransportError

ORDER_VERSION = 0
"""The version of all order requests."""

PART_ITEMS = 50_000
"""Items of a part, brokers not counted: the loop makes and encodes such a part in some 30 ms."""


class OrderSender(NamedTuple):
    """The sender of orders: a controller in one epoch."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch


class OrderRequest(NamedTuple):
    """A message to a broker, with its API."""

    spec: AnyApi
    message: (
        update_metadata.UpdateMetadataRequest
        | leader_and_isr.LeaderAndIsrRequest
        | stop_replica.StopReplicaRequest
    )


class MetadataPart(NamedTuple):
    """The metadata of one UpdateMetadata request."""

    removed_topics: list[str]
    partitions: update_metadata.SharedPartitions


class MetadataParts:
    """The metadata of a delivery, in parts. Deliveries with the same content share the parts, made
    and encoded once, so that the controller of a large cluster does no more of that work than the
    controller of a small one. Only the last content is kept."""

    def __init__(self) -> None:
        self._delivery: OrderDelivery | None = None
        self._parts: list[MetadataPart] = []

    def of(self, delivery: OrderDelivery) -> list[MetadataPart]:
        """All parts of the metadata; those encoded for another broker stay encoded."""
        before = self._delivery
        if (
            before is None
            or before.metadata is not delivery.metadata
            or before.brokers != delivery.brokers
            or before.removed_topics != delivery.removed_topics
        ):
            live = {broker.broker_id for broker in delivery.brokers}
            items: list[str | PartitionLeadership] = [*delivery.removed_topics, *delivery.metadata]
            self._parts = [
                _metadata_part(live, part)
                for part in _parts(
                    items,
                    lambda item: 1 if isinstance(item, str) else _items_of_metadata(item, live),
                    _room(delivery),
                )
            ]
            self._delivery = delivery
        return self._parts


def _metadata_part(live: set[BrokerId], part: list[str | PartitionLeadership]) -> MetadataPart:
    items = [item for item in part if not isinstance(item, str)]
    return MetadataPart(
        [item for item in part if isinstance(item, str)],
        update_metadata.SharedPartitions(len(items), partial(_metadata_of, live, items)),
    )


def _metadata_of(
    live: set[BrokerId], items: list[PartitionLeadership], start: int, end: int
) -> list[update_metadata.UpdateMetadataPartition]:
    return [
        update_metadata.UpdateMetadataPartition(
            topic=item.partition.topic,
            topic_id=item.topic_id,
            partition=item.partition.partition,
            leader=item.state.leader,
            leader_epoch=item.state.leader_epoch,
            isr=item.state.isr,
            replicas=item.assigned,
            offline_replicas=_offline(item, live),
        )
        for item in items[start:end]
    ]


def _room(delivery: OrderDelivery) -> int:
    return MAX_ITEMS - sum(1 + len(broker.endpoints) for broker in delivery.brokers)


def rounds_of(
    sender: OrderSender, delivery: OrderDelivery, shared: MetadataParts | None = None
) -> Iterator[list[OrderRequest]]:
    """The requests of a delivery in the order of sending, by round: a round is sent together, once
    all answers to the round before have arrived. Each round is made when it is due."""
    metadata = (shared or MetadataParts()).of(delivery)
    led = _parts(delivery.leadership, _items_led, _room(delivery))
    if not delivery.leadership and not delivery.full:
        led = []
    stopped = _parts(delivery.stop, lambda tp: 1, _room(delivery)) if delivery.stop else []
    makers: list[Callable[[], OrderRequest]] = [
        *(partial(_update_metadata, sender, delivery, metadata, n) for n in range(len(metadata))),
        *(partial(_leader_and_isr, sender, delivery, led, n) for n in range(len(led))),
        *(partial(_stop_replica, sender, delivery, part) for part in stopped),
    ]
    if max(len(metadata), len(led), len(stopped)) == 1:
        yield [make() for make in makers]
        return
    for make in makers:
        yield [make()]


def _parts(items: Sequence[Item], size_of: Callable[[Item], int], room: int) -> list[list[Item]]:
    """All items in one list if they fit into `room`, otherwise in parts of PART_ITEMS."""
    sizes = [size_of(item) for item in items]
    if sum(sizes) <= room:
        return [list(items)]
    parts: list[list[Item]] = [[]]
    left = PART_ITEMS
    for item, size in zip(items, sizes, strict=True):
        if size > left and parts[-1]:
            parts.append([])
            left = PART_ITEMS
        parts[-1].append(item)
        left -= size
    return parts


def _offline(item: PartitionLeadership, live: set[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple([r for r in item.assigned if r not in live or r in item.failed])


def _items_of_metadata(item: PartitionLeadership, live: set[BrokerId]) -> int:
    """The number of items that a broker counts for an entry of UpdateMetadata when it decodes
    it."""
    return 1 + len(item.state.isr) + len(item.assigned) + len(_offline(item, live))


def _items_led(item: PartitionLeadership) -> int:
    """The number of items that a broker counts for an entry of LeaderAndIsr when it decodes it."""
    return 1 + len(item.state.isr) + len(item.assigned) + len(item.state.joined_epochs)


def _update_metadata(
    sender: OrderSender,
    delivery: OrderDelivery,
    parts: list[MetadataPart],
    number: int,
) -> OrderRequest:
    in_parts = delivery.full and len(parts) > 1
    message = update_metadata.UpdateMetadataRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=delivery.broker_epoch,
        order_number=delivery.number,
        brokers=[
            update_metadata.UpdateMetadataBroker(
                broker_id=b.broker_id,
                host=b.host,
                port=b.port,
                rack=b.rack,
                epoch=b.epoch,
                endpoints=b.endpoints,
            )
            for b in delivery.brokers
        ],
        removed_topics=parts[number].removed_topics,
        partitions=parts[number].partitions,
        full=delivery.full,
        part=number if in_parts else 0,
        goes_on=in_parts and number + 1 < len(parts),
    )
    return OrderRequest(update_metadata.API, message)


def _leader_and_isr(
    sender: OrderSender,
    delivery: OrderDelivery,
    parts: list[list[PartitionLeadership]],
    number: int,
) -> OrderRequest:
    leaders = {item.state.leader for item in parts[number]}
    in_parts = delivery.full and len(parts) > 1
    message = leader_and_isr.LeaderAndIsrRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=delivery.broker_epoch,
        order_number=delivery.number,
        partitions=[_leadership(item) for item in parts[number]],
        live_leaders=[
            leader_and_isr.LiveLeader(broker_id=b.broker_id, host=b.host, port=b.port)
            for b in delivery.brokers
            if b.broker_id in leaders
        ],
        full=delivery.full,
        part=number if in_parts else 0,
        goes_on=in_parts and number + 1 < len(parts),
    )
    return OrderRequest(leader_and_isr.API, message)


def _stop_replica(
    sender: OrderSender, delivery: OrderDelivery, part: list[TopicPartition]
) -> OrderRequest:
    message = stop_replica.StopReplicaRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=delivery.broker_epoch,
        order_number=delivery.number,
        partitions=[
            stop_replica.StopReplicaPartition(
                topic=tp.topic, partition=tp.partition, leader_epoch=NO_EPOCH, delete=True
            )
            for tp in part
        ],
    )
    return OrderRequest(stop_replica.API, message)


def _leadership(item: PartitionLeadership) -> leader_and_isr.LeaderAndIsrPartition:
    return leader_and_isr.LeaderAndIsrPartition(
        topic=item.partition.topic,
        topic_id=item.topic_id,
        partition=item.partition.partition,
        controller_epoch=item.state.controller_epoch,
        leader=item.state.leader,
        leader_epoch=item.state.leader_epoch,
        isr=list(item.state.isr),
        partition_epoch=item.state.partition_epoch,
        replicas=list(item.assigned),
        is_new=item.state.leader_epoch == 0,
        joined_epochs=dict(item.state.joined_epochs),
    )


def without_unsendable(
    sender: OrderSender, delivery: OrderDelivery
) -> tuple[OrderDelivery, list[str]]:
    """The delivery without the brokers, partitions and topics that no request can hold, and the
    names of these. Each is tried alone, so this is for a delivery that could not be sent."""
    empty = replace(
        delivery, brokers=(), metadata=(), removed_topics=(), leadership=(), stop=(), full=False
    )
    only = partial(replace, empty)
    left_out: dict[str, None] = {}

    def sendable(what: str, name: BrokerId | TopicPartition | str, alone: OrderDelivery) -> bool:
        try:
            for requests in rounds_of(sender, alone):
                for spec, message in requests:
                    encode_request_frame(spec, ORDER_VERSION, 0, "", message)
        except Exception:  # noqa: BLE001 - what is looked for is whatever can't be sent
            left_out[f"{what} {name}"[:200]] = None
            return False
        return True

    sound = replace(
        delivery,
        brokers=tuple(
            b for b in delivery.brokers if sendable("brokers", b.broker_id, only(brokers=(b,)))
        ),
        metadata=tuple(
            x for x in delivery.metadata if sendable("metadata", x.partition, only(metadata=(x,)))
        ),
        removed_topics=tuple(
            x
            for x in delivery.removed_topics
            if sendable("removed_topics", x, only(removed_topics=(x,)))
        ),
        leadership=tuple(
            x
            for x in delivery.leadership
            if sendable("leadership", x.partition, only(leadership=(x,)))
        ),
        stop=tuple(tp for tp in delivery.stop if sendable("stop", tp, only(stop=(tp,)))),
    )
    return sound, list(left_out)


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
