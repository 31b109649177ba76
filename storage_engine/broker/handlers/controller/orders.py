"""The orders of the controller: LeaderAndIsr, StopReplica and UpdateMetadata; also
ControlledShutdown, which only the controller answers.

LeaderAndIsr (key 4) says which partitions this broker leads or follows, StopReplica (key 5) which
replicas it stops or deletes, UpdateMetadata (key 6) what the cluster looks like. `order_gate`
refuses an order of a broker that is not the controller, one older than another order of the same
controller, and one for an earlier incarnation of this broker. Metadata are valid as soon as they
are admitted. The other orders are carried out one after another, each once the settings of its
topics are known; a long one takes several turns of the event loop, and is checked again in each. A
partition that fails does not hinder the others. Source: R-CTL1, R-CTL3, R-CTL4.

A full LeaderAndIsr names every replica of this broker. A replica that it does not name is stopped
when its last part is carried out. It is also deleted if other brokers have its partition by now. If
the partition is unknown, its topic may be deleted: `orphaned_logs` finds out. Source: R-CTL4,
R-CTL8.

ControlledShutdown (key 7): a broker wants to stop, and its leaders move first. Source: R-CTL9.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from storage_engine.broker import unexpected
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.order_gate import FILES_STEPS, NamedReplicas, OrderGate, Orders
from storage_engine.broker.controller.acting_controller import ActingController
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.coordinators.coordinators import GroupCoordinators
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.settings.topic_config import TopicConfigs
from storage_engine.broker.upkeep.orphaned_logs import OrphanedLogs
from storage_engine.core.errors import ErrorCode, KafkaError, LogDirError, LogStorageError
from storage_engine.core.groups.events import TopicsDeleted
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import Endpoint, Scheduler
from storage_engine.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from storage_engine.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveLeader,
)
from storage_engine.protocol.apis.order_answers import PartitionOutcome
from storage_engine.protocol.apis.stop_replica import StopReplicaRequest, StopReplicaResponse
from storage_engine.protocol.apis.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

log = logging.getLogger(__name__)


def acting_controller(controller: ControllerRunner) -> ActingController:
    """Raises KafkaError NOT_CONTROLLER on other brokers, and while the controller loads."""
    acting = controller.acting
    if acting is None or not acting.loaded:
        raise KafkaError(
            f"broker {controller.broker_id} is not the controller", ErrorCode.NOT_CONTROLLER
        )
    return acting


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaHandler:
    """Carries out StopReplica."""

    order_gate: OrderGate
    orders: Orders
    replicas: ReplicaManager
    topic_configs: TopicConfigs

    def handle(self, call: ApiCall[StopReplicaResponse], request: StopReplicaRequest) -> None:
        def refuse(code: ErrorCode) -> None:
            call.respond(StopReplicaResponse(error_code=int(code)))

        def apply() -> Iterator[int]:
            outcomes = []
            for item in request.partitions:
                refusal = call.refusal() or self.order_gate.refusal(request, call.connection)
                if refusal is not ErrorCode.NONE:
                    refuse(refusal)
                    return
                tp = TopicPartition(item.topic, item.partition)
                code = int(stop(self.replicas, tp, delete=item.delete))
                outcomes.append(
                    PartitionOutcome(topic=item.topic, partition=item.partition, error_code=code)
                )
                yield FILES_STEPS if item.delete else 1
            for topic in {item.topic for item in request.partitions if item.delete}:
                self.topic_configs.forget(topic)
            call.respond(StopReplicaResponse(partitions=outcomes))

        self.order_gate.admit(
            request,
            call.connection,
            carry_out=lambda: self.orders.submit(set(), apply, refuse),
            refuse=refuse,
        )


def stop(replicas: ReplicaManager, tp: TopicPartition, *, delete: bool) -> ErrorCode:
    """Stop one replica, and delete it if asked to; return the error that prevented it, or NONE."""
    try:
        replicas.stop(tp, delete=delete)
    except LogStorageError as failure:
        log.error("replica of %s not deleted: %s", tp, failure)
        # Only a log dir that failed makes the controller wait for a restart of this broker.
        failed = isinstance(failure, LogDirError)
        return failure.code if failed else ErrorCode.UNKNOWN_SERVER_ERROR
    except Exception as error:  # noqa: BLE001 - whatever it is, the others are stopped
        unexpected.report(f"replica of {tp} not stopped", error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class FullOrders:
    """Tracks the parts of full orders, and stops or deletes the replicas that they don't name."""

    broker_id: BrokerId
    replicas: ReplicaManager
    metadata: MetadataCache
    orphaned_logs: OrphanedLogs
    named: NamedReplicas

    def begin(self, request: LeaderAndIsrRequest) -> bool:
        """Begin a part; return False when a part before it is missing."""
        if not self.named.expects(request):
            log.error("order refused: its part %d came without the parts before it", request.part)
            return False
        if request.part == 0:
            self.replicas.postponed.forget_all()
        return True

    def end(self, request: LeaderAndIsrRequest) -> None:
        """Note that the part is carried out; the last one ends the order."""
        partitions = {TopicPartition(item.topic, item.partition) for item in request.partitions}
        self.named.note(request, partitions)
        if not request.goes_on:
            self._stop_all_but(self.named.partitions)
            self._delete_all_but(self.named.partitions)
            self.replicas.lease.unfence()

    def _stop_all_but(self, named: set[TopicPartition]) -> None:
        for partition in list(self.replicas):
            if partition.topic_partition not in named:
                self.replicas.stop(partition.topic_partition, delete=False)

    def _delete_all_but(self, named: set[TopicPartition]) -> None:
        """Delete replicas that moved to other brokers while this one was away: the controller does
        not wait for dead brokers."""
        unknown = []
        for tp in sorted(self.replicas.logs_here().keys() - named):
            known = (self.metadata.partitions(tp.topic) or {}).get(tp.partition)
            if known is None:
                unknown.append(tp)
            elif self.broker_id not in known.replicas:
                log.info("replica deleted: it is on other brokers now partition=%s", tp)
                stop(self.replicas, tp, delete=True)
        self.orphaned_logs.put_aside_deleted(unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrHandler:
    """Carries out LeaderAndIsr."""

    order_gate: OrderGate
    orders: Orders
    full_orders: FullOrders
    replicas: ReplicaManager
    metadata: MetadataCache

    def handle(self, call: ApiCall[LeaderAndIsrResponse], request: LeaderAndIsrRequest) -> None:
        def refuse(code: ErrorCode) -> None:
            call.respond(LeaderAndIsrResponse(error_code=int(code)))

        def refused() -> bool:
            refusal = call.refusal() or self.order_gate.refusal(request, call.connection)
            if refusal is ErrorCode.NONE:
                return False
            refuse(refusal)
            return True

        def apply() -> Iterator[int]:
            endpoints: dict[int, Endpoint] = {
                leader.broker_id: self._endpoint(leader) for leader in request.live_leaders
            }
            outcomes = []
            if request.full and not self.full_orders.begin(request):
                refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
                return
            try:
                for item in request.partitions:
                    # A session, or a controller, may have ended since the turn before.
                    if refused():
                        return
                    is_new = not self.replicas.has_log(TopicPartition(item.topic, item.partition))
                    outcomes.append(
                        PartitionOutcome(
                            topic=item.topic,
                            partition=item.partition,
                            error_code=int(self._apply(item, endpoints)),
                        )
                    )
                    yield FILES_STEPS if is_new else 1
            finally:
                self.replicas.roles_taken()
            if refused():
                return
            if request.full:
                self.full_orders.end(request)
            call.respond(LeaderAndIsrResponse(partitions=outcomes))

        topics = {item.topic for item in request.partitions}
        self.order_gate.admit(
            request,
            call.connection,
            carry_out=lambda: self.orders.submit(topics, apply, refuse),
            refuse=refuse,
        )

    def _endpoint(self, leader: LiveLeader) -> Endpoint:
        """The address by which this broker connects to the leader: the controller may use another
        listener, in a rolling change of it."""
        host, port = leader.host, leader.port
        known = self.metadata.brokers.get(leader.broker_id)
        if known is not None and known.endpoints:
            host, port = known.host, known.port
        return Endpoint(broker_id=leader.broker_id, host=host, port=port)

    def _apply(self, item: LeaderAndIsrPartition, endpoints: dict[int, Endpoint]) -> ErrorCode:
        try:
            return self.replicas.apply_leadership(item, endpoints)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are led and followed
            unexpected.report(f"leadership of {item.topic}-{item.partition} not taken", error)
            return ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataHandler:
    """Carries out UpdateMetadata."""

    order_gate: OrderGate
    metadata: MetadataCache
    replicas: ReplicaManager
    topic_configs: TopicConfigs
    group_coordinators: GroupCoordinators

    def handle(self, call: ApiCall[UpdateMetadataResponse], request: UpdateMetadataRequest) -> None:
        def refuse(code: ErrorCode) -> None:
            call.respond(UpdateMetadataResponse(error_code=int(code)))

        def carry_out() -> None:
            refusal = call.refusal()
            if refusal is not ErrorCode.NONE:
                refuse(refusal)
                return
            try:
                self._take(request)
            except Exception as error:  # noqa: BLE001 - whatever it is, the controller says it again
                refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
                unexpected.report("metadata not taken", error)
            else:
                call.respond(UpdateMetadataResponse())

        self.order_gate.admit(request, call.connection, carry_out, refuse)

    def _take(self, request: UpdateMetadataRequest) -> None:
        self.metadata.update(request)
        # A deletion of records that waits for a replica that has died waits no longer.
        for partition in self.replicas.led_here():
            if len(partition.deletion_waiters):
                partition.deletion_waiters.wake()
        for topic in request.removed_topics:
            self.topic_configs.forget(topic)
        if request.removed_topics:
            removed = frozenset(request.removed_topics)
            self.group_coordinators.submit_to_all(TopicsDeleted(topics=removed))


LONGEST_WAIT_MS = 10_000
"""After this time the answer names the partitions that could not be moved yet."""


def controlled_shutdown(
    controller: ControllerRunner,
    scheduler: Scheduler,
    call: ApiCall[ControlledShutdownResponse],
    request: ControlledShutdownRequest,
) -> None:
    acting = controller.acting
    if acting is None or not acting.loaded:
        _refuse(call, ErrorCode.NOT_CONTROLLER)
        return
    broker = acting.core.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        _refuse(call, ErrorCode.STALE_BROKER_EPOCH)
        return
    remaining: tuple[TopicPartition, ...] = ()

    def expire() -> None:
        call.respond(ControlledShutdownResponse(remaining_partitions=remaining))

    deadline = RequestDeadline(scheduler, LONGEST_WAIT_MS, expire)

    def on_progress(left: tuple[TopicPartition, ...] | None) -> None:
        nonlocal remaining
        if left is None:
            if deadline.finish():
                _refuse(call, ErrorCode.NOT_CONTROLLER)
            return
        remaining = left
        if not left and deadline.finish():
            call.respond(ControlledShutdownResponse())

    acting.controlled_shutdown(request.broker_id, request.broker_epoch, on_progress)


def _refuse(call: ApiCall[ControlledShutdownResponse], code: ErrorCode) -> None:
    call.respond(ControlledShutdownResponse(error_code=int(code)))
