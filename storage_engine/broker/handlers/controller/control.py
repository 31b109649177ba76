"""LeaderAndIsr, StopReplica and UpdateMetadata: what the controller orders (keys 4, 5, 6).

Rule: an order of another than the controller, one older than another of the same controller, and
one meant for an earlier incarnation of this broker are refused (`order_gate`); orders are carried
out one after another, each once the settings of its topics are known, and a long one in several
turns of the event loop, each of which asks again whether it is refused. A full one ends what it
does not name with its last part. A partition that can't be led, followed or stopped keeps no other
from it.
Source: R-CTL1, R-CTL3, R-CTL4, document 001.
"""

import logging
from collections.abc import Iterator

from storage_engine.broker import unexpected
from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode, LogFolderError, LogStorageError
from storage_engine.core.groups.events import TopicsDeleted
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Endpoint
from storage_engine.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from storage_engine.protocol.apis.order_answers import PartitionOutcome
from storage_engine.protocol.apis.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
)
from storage_engine.protocol.apis.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

log = logging.getLogger(__name__)


def leader_and_isr(context: BrokerContext, call: Call, request: LeaderAndIsrRequest) -> None:
    def refuse(code: ErrorCode) -> None:
        call.respond(LeaderAndIsrResponse(error_code=int(code)))

    def refused() -> bool:
        refusal = context.order_gate.refusal(request, call.connection)
        if refusal is ErrorCode.NONE:
            return False
        refuse(refusal)
        return True

    def apply() -> Iterator[None]:
        endpoints: dict[int, Endpoint] = {
            leader.broker_id: Endpoint(
                broker_id=leader.broker_id, host=leader.host, port=leader.port
            )
            for leader in request.live_leaders
        }
        outcomes = []
        if request.full and not _begin_full(context, request):
            refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        try:
            for item in request.partitions:
                # Anew for each: a session, or a controller, may have ended since the turn before.
                if refused():
                    return
                outcomes.append(
                    PartitionOutcome(
                        topic=item.topic,
                        partition=item.partition,
                        error_code=int(_apply(context, item, endpoints)),
                    )
                )
                yield None
        finally:
            context.replicas.roles_taken()
        if refused():
            return
        if request.full:
            _end_full(context, request)
        call.respond(LeaderAndIsrResponse(partitions=outcomes))

    topics = {item.topic for item in request.partitions}
    context.order_gate.admit(
        request,
        call.connection,
        carry_out=lambda: context.orders.submit(topics, apply, refuse),
        refuse=refuse,
    )


def _apply(
    context: BrokerContext, item: LeaderAndIsrPartition, endpoints: dict[int, Endpoint]
) -> ErrorCode:
    try:
        return context.replicas.apply_leadership(item, endpoints)
    except Exception as error:  # noqa: BLE001 - whatever it is, the others are led and followed
        unexpected.report(f"leadership of {item.topic}-{item.partition} not taken", error)
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _begin_full(context: BrokerContext, request: LeaderAndIsrRequest) -> bool:
    if not context.named_replicas.expects(request):
        log.error("order refused: its part %d came without those before", request.part)
        return False
    if request.part == 0:
        context.replicas.postponed.forget_all()
    return True


def _end_full(context: BrokerContext, request: LeaderAndIsrRequest) -> None:
    named = context.named_replicas
    named.note(request, {TopicPartition(item.topic, item.partition) for item in request.partitions})
    if not request.goes_on:
        _stop_all_but(context, named.partitions)
        _end_strays(context, named.partitions)
        context.replicas.lease.unfence()


def _stop_all_but(context: BrokerContext, named: set[TopicPartition]) -> None:
    for partition in list(context.replicas):
        if partition.topic_partition not in named:
            context.replicas.stop(partition.topic_partition, delete=False)


def _end_strays(context: BrokerContext, named: set[TopicPartition]) -> None:
    """Replicas that went to other brokers while this one was away are deleted: the controller does
    not wait for the dead (R-CTL8). Those of which it knows nothing may be of topics that are gone.
    """
    unknown = []
    for tp in sorted(context.replicas.logs_here().keys() - named):
        known = (context.metadata.partitions(tp.topic) or {}).get(tp.partition)
        if known is None:
            unknown.append(tp)
        elif context.broker_id not in known.replicas:
            log.info("replica deleted: it is on other brokers now partition=%s", tp)
            _stop(context, tp, delete=True)
    context.strays.look_at(unknown)


def stop_replica(context: BrokerContext, call: Call, request: StopReplicaRequest) -> None:
    def refuse(code: ErrorCode) -> None:
        call.respond(StopReplicaResponse(error_code=int(code)))

    def apply() -> Iterator[None]:
        outcomes = []
        for item in request.partitions:
            refusal = context.order_gate.refusal(request, call.connection)
            if refusal is not ErrorCode.NONE:
                refuse(refusal)
                return
            code = _stop(context, TopicPartition(item.topic, item.partition), item.delete)
            outcomes.append(
                PartitionOutcome(topic=item.topic, partition=item.partition, error_code=int(code))
            )
            yield None
        for topic in {item.topic for item in request.partitions if item.delete}:
            context.topic_configs.forget(topic)
        call.respond(StopReplicaResponse(partitions=outcomes))

    context.order_gate.admit(
        request,
        call.connection,
        carry_out=lambda: context.orders.submit(set(), apply, refuse),
        refuse=refuse,
    )


def _stop(context: BrokerContext, tp: TopicPartition, delete: bool) -> ErrorCode:
    try:
        context.replicas.stop(tp, delete=delete)
    except LogStorageError as failure:
        log.error("replica of %s not deleted: %s", tp, failure)
        # Only a folder that failed makes the controller wait for a restart of this broker.
        failed = isinstance(failure, LogFolderError)
        return failure.code if failed else ErrorCode.UNKNOWN_SERVER_ERROR
    except Exception as error:  # noqa: BLE001 - whatever it is, the others are stopped
        unexpected.report(f"replica of {tp} not stopped", error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def update_metadata(context: BrokerContext, call: Call, request: UpdateMetadataRequest) -> None:
    def refuse(code: ErrorCode) -> None:
        call.respond(UpdateMetadataResponse(error_code=int(code)))

    def carry_out() -> None:
        try:
            _take_metadata(context, request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the controller says it again
            refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            unexpected.report("metadata not taken", error)
        else:
            call.respond(UpdateMetadataResponse())

    context.order_gate.admit(request, call.connection, carry_out, refuse)


def _take_metadata(context: BrokerContext, request: UpdateMetadataRequest) -> None:
    context.metadata.update(request)
    # Who waits for a replica that has died waits no longer.
    for partition in context.replicas.led_here():
        if len(partition.deletion_waiters):
            partition.deletion_waiters.wake()
    for topic in request.removed_topics:
        context.topic_configs.forget(topic)
    if request.removed_topics:
        removed = frozenset(request.removed_topics)
        context.group_coordinators.submit_to_all(TopicsDeleted(topics=removed))
