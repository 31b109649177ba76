"""Makes the requests of the controller's deliveries to brokers, each as UpdateMetadata,
LeaderAndIsr and StopReplica, in this order. No request has more items than a broker accepts: a
longer one is sent in parts, and a full order stays full in them (`full_order`). Source: R-CTL1,
R-CTL3, R-CTL6.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from storage_engine.core.control.controller_events import (
    OrderDelivery,
    PartitionLeadership,
)
from storage_engine.core.ids import NO_EPOCH, BrokerId, ControllerEpoch, TopicPartition
from storage_engine.protocol.apis import leader_and_isr, stop_replica, update_metadata
from storage_engine.protocol.apis.spec import MAX_ITEMS, AnyApi
from storage_engine.protocol.framing import encode_request_frame

Item = TypeVar("Item")

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
