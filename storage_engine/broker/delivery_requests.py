"""What a delivery is on the wire: UpdateMetadata, LeaderAndIsr, StopReplica, in this order."""

from dataclasses import replace
from typing import Any, NamedTuple

from storage_engine.core.controller_events import Delivery, PartitionLeadership
from storage_engine.core.ids import NO_EPOCH, BrokerId, ControllerEpoch
from storage_engine.protocol.apis import leader_and_isr, stop_replica, update_metadata
from storage_engine.protocol.framing import encode_request_frame


class Sender(NamedTuple):
    """One controller, in one epoch."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch


def requests_of(sender: Sender, delivery: Delivery) -> list[tuple[Any, Any]]:
    """All requests of a delivery, in the order in which they are sent."""
    requests: list[tuple[Any, Any]] = [
        (update_metadata.API, _update_metadata(sender, delivery)),
    ]
    if delivery.leadership or delivery.full:
        requests.append((leader_and_isr.API, _leader_and_isr(sender, delivery)))
    if delivery.stop:
        requests.append((stop_replica.API, _stop_replica(sender, delivery)))
    return requests


def _update_metadata(sender: Sender, delivery: Delivery) -> update_metadata.UpdateMetadataRequest:
    live = {broker.broker_id for broker in delivery.brokers}
    return update_metadata.UpdateMetadataRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=delivery.broker_epoch,
        order_number=delivery.number,
        brokers=[
            update_metadata.UpdateMetadataBroker(
                broker_id=b.broker_id, host=b.host, port=b.port, rack=b.rack, epoch=b.epoch
            )
            for b in delivery.brokers
        ],
        removed_topics=list(delivery.removed_topics),
        partitions=[
            update_metadata.UpdateMetadataPartition(
                topic=item.partition.topic,
                topic_id=item.topic_id,
                partition=item.partition.partition,
                leader=item.state.leader,
                leader_epoch=item.state.leader_epoch,
                isr=list(item.state.isr),
                replicas=list(item.assigned),
                offline_replicas=[r for r in item.assigned if r not in live or r in item.failed],
            )
            for item in delivery.metadata
        ],
        full=delivery.full,
    )


def _leader_and_isr(sender: Sender, delivery: Delivery) -> leader_and_isr.LeaderAndIsrRequest:
    leaders = {item.state.leader for item in delivery.leadership}
    return leader_and_isr.LeaderAndIsrRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=delivery.broker_epoch,
        order_number=delivery.number,
        partitions=[_leadership(item) for item in delivery.leadership],
        live_leaders=[
            leader_and_isr.LiveLeader(broker_id=b.broker_id, host=b.host, port=b.port)
            for b in delivery.brokers
            if b.broker_id in leaders
        ],
        full=delivery.full,
    )


def _stop_replica(sender: Sender, delivery: Delivery) -> stop_replica.StopReplicaRequest:
    return stop_replica.StopReplicaRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=delivery.broker_epoch,
        order_number=delivery.number,
        partitions=[
            stop_replica.StopReplicaPartition(
                topic=tp.topic, partition=tp.partition, leader_epoch=NO_EPOCH, delete=True
            )
            for tp in delivery.stop
        ],
    )


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
        joined_epochs={int(b): int(epoch) for b, epoch in item.state.joined_epochs.items()},
    )


def without_unsendable(sender: Sender, delivery: Delivery) -> tuple[Delivery, list[str]]:
    """The delivery without the brokers, partitions and topics that no request can hold, and the
    names of those. Each is tried alone, so this is for a delivery that could not be sent."""
    empty = replace(
        delivery, brokers=(), metadata=(), removed_topics=(), leadership=(), stop=(), full=False
    )
    left_out: dict[str, None] = {}

    def sendable(what: str, item: Any, name: object) -> bool:
        alone: dict[str, Any] = {what: (item,)}
        try:
            for spec, message in requests_of(sender, replace(empty, **alone)):
                encode_request_frame(spec, 0, 0, "", message)
        except Exception:  # noqa: BLE001 - what is looked for is whatever can't be sent
            left_out[f"{what} {name}"[:200]] = None
            return False
        return True

    sound = replace(
        delivery,
        brokers=tuple(b for b in delivery.brokers if sendable("brokers", b, b.broker_id)),
        metadata=tuple(x for x in delivery.metadata if sendable("metadata", x, x.partition)),
        removed_topics=tuple(
            topic for topic in delivery.removed_topics if sendable("removed_topics", topic, topic)
        ),
        leadership=tuple(x for x in delivery.leadership if sendable("leadership", x, x.partition)),
        stop=tuple(tp for tp in delivery.stop if sendable("stop", tp, tp)),
    )
    return sound, list(left_out)
