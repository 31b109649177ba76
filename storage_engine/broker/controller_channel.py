"""Carries the controller's deliveries to brokers: UpdateMetadata, LeaderAndIsr, StopReplica, in
this order.

Rule: a delivery counts as made only when the broker has answered all of its requests; otherwise it
is reported as failed after a pause. A broker that answers STALE_CONTROLLER_EPOCH tells this
controller that it has been replaced. Source: R-CTL1, R-CTL3, R-CTL6.
"""

import logging
from collections.abc import Callable
from typing import Any

from storage_engine.core.cluster_state import BrokerInfo
from storage_engine.core.controller_events import (
    Delivered,
    Delivery,
    DeliveryFailed,
    PartitionLeadership,
    ReplicasFailed,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import NO_EPOCH, BrokerId, ControllerEpoch, TopicPartition
from storage_engine.core.ports import Endpoint, Scheduler, Transport, TransportError
from storage_engine.protocol.apis import leader_and_isr, stop_replica, update_metadata

log = logging.getLogger(__name__)

CHANNEL = "controller"
TIMEOUT_MS = 30_000
RETRY_MS = 200
"""Pause before a failed delivery is owed again."""


class ControllerChannel:
    """Sends deliveries for one controller epoch."""

    def __init__(
        self,
        *,
        controller_id: BrokerId,
        controller_epoch: ControllerEpoch,
        transport: Transport,
        scheduler: Scheduler,
        report: Callable[[Delivered | DeliveryFailed | ReplicasFailed], None],
        on_replaced: Callable[[], None],
    ) -> None:
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._transport = transport
        self._scheduler = scheduler
        self._report = report
        self._on_replaced = on_replaced

    def send(self, broker: BrokerInfo, delivery: Delivery) -> None:
        """Send all requests of a delivery, pipelined on one connection."""
        endpoint = Endpoint(broker_id=broker.broker_id, host=broker.host, port=broker.port)
        requests = list(self._requests(delivery))
        outcome = _Outcome(len(requests))

        def on_reply(reply: Any) -> None:
            outcome.note(reply)
            if outcome.open:
                return
            if outcome.replaced:
                self._on_replaced()
                return
            if outcome.failed_replicas:
                self._report_failed(broker, delivery, outcome.failed_replicas)
            if outcome.failure is None:
                self._report(Delivered(broker=broker.broker_id, delivery=delivery))
            else:
                log.info("delivery to broker %d failed: %s", broker.broker_id, outcome.failure)
                failed = DeliveryFailed(broker=broker.broker_id, delivery=delivery)
                self._scheduler.call_later(RETRY_MS, lambda: self._report(failed))

        for spec, message in requests:
            self._transport.request(
                endpoint, CHANNEL, spec, 0, message, timeout_ms=TIMEOUT_MS, on_reply=on_reply
            )

    def _report_failed(
        self, broker: BrokerInfo, delivery: Delivery, partitions: list[TopicPartition]
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

    def _requests(self, delivery: Delivery) -> list[tuple[Any, Any]]:
        requests: list[tuple[Any, Any]] = [
            (update_metadata.API, self._update_metadata(delivery)),
        ]
        if delivery.leadership or delivery.full:
            requests.append((leader_and_isr.API, self._leader_and_isr(delivery)))
        if delivery.stop:
            requests.append((stop_replica.API, self._stop_replica(delivery)))
        return requests

    def _update_metadata(self, delivery: Delivery) -> update_metadata.UpdateMetadataRequest:
        live = {broker.broker_id for broker in delivery.brokers}
        return update_metadata.UpdateMetadataRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
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
                    offline_replicas=[
                        r for r in item.assigned if r not in live or r in item.failed
                    ],
                )
                for item in delivery.metadata
            ],
            full=delivery.full,
        )

    def _leader_and_isr(self, delivery: Delivery) -> leader_and_isr.LeaderAndIsrRequest:
        leaders = {item.state.leader for item in delivery.leadership}
        return leader_and_isr.LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
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

    def _stop_replica(self, delivery: Delivery) -> stop_replica.StopReplicaRequest:
        return stop_replica.StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
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


class _Outcome:
    """Sums up the answers to one delivery."""

    __slots__ = ("failed_replicas", "failure", "open", "replaced")

    def __init__(self, requests: int) -> None:
        self.open = requests
        self.failure: str | None = None
        self.failed_replicas: list[TopicPartition] = []
        """What the broker can't lead, follow or delete: its folder failed."""
        self.replaced = False

    def note(self, reply: Any) -> None:
        self.open -= 1
        if isinstance(reply, TransportError):
            self.failure = reply.reason
            return
        code = ErrorCode.of(reply.error_code)
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self.replaced = True
        elif code is not ErrorCode.NONE:
            self.failure = code.name
        elif isinstance(
            reply, leader_and_isr.LeaderAndIsrResponse | stop_replica.StopReplicaResponse
        ):
            self._note_partitions(reply)

    def _note_partitions(
        self, reply: leader_and_isr.LeaderAndIsrResponse | stop_replica.StopReplicaResponse
    ) -> None:
        for item in reply.partitions:
            code = ErrorCode.of(item.error_code)
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.failed_replicas.append(TopicPartition(item.topic, item.partition))
            if code and isinstance(reply, stop_replica.StopReplicaResponse):
                # Only what is deleted counts as deleted. (A replica that can't be led or followed
                # is told again with its next change, not for ever.)
                self.failure = f"{item.topic}-{item.partition} not deleted: {code.name}"
