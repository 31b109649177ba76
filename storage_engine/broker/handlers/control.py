"""LeaderAndIsr, StopReplica and UpdateMetadata: what the controller orders (keys 4, 5, 6).

Rule: an order of an older controller, one older than another of the same controller, and one meant
for an earlier incarnation of this broker are refused; orders are carried out one after another,
each once the settings of its topics are known, and a long one in several turns of the event loop,
each of which asks again whether it is refused.
Source: R-CTL1, R-CTL3, R-CTL4, document 001.
"""

import logging
from collections.abc import Iterator

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode, LogFolderError, LogStorageError
from storage_engine.core.groups.events import TopicsDeleted
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Endpoint
from storage_engine.protocol.apis.leader_and_isr import (
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


def _refusal(
    context: BrokerContext, order: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
) -> ErrorCode:
    """NONE when the order is to be taken; remembers the newest controller epoch and order."""
    newest = context.highest_controller_epoch, context.highest_order_number
    if order.controller_epoch < newest[0]:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if (order.controller_epoch, order.order_number) < newest:
        # Its connection was given up, and what it said has been said again since.
        return ErrorCode.REQUEST_TIMED_OUT
    context.highest_controller_epoch = order.controller_epoch
    context.highest_order_number = order.order_number
    if order.broker_epoch not in (-1, context.broker_epoch()):
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def leader_and_isr(context: BrokerContext, call: Call, request: LeaderAndIsrRequest) -> None:
    def refused() -> bool:
        refusal = _refusal(context, request)
        if refusal is ErrorCode.NONE:
            return False
        call.respond(LeaderAndIsrResponse(error_code=int(refusal)))
        return True

    def apply() -> Iterator[None]:
        endpoints: dict[int, Endpoint] = {
            leader.broker_id: Endpoint(
                broker_id=leader.broker_id, host=leader.host, port=leader.port
            )
            for leader in request.live_leaders
        }
        outcomes = []
        try:
            for item in request.partitions:
                # Anew for each: a session, or a controller, may have ended since the turn before.
                if refused():
                    return
                outcomes.append(
                    PartitionOutcome(
                        topic=item.topic,
                        partition=item.partition,
                        error_code=int(context.replicas.apply_leadership(item, endpoints)),
                    )
                )
                yield None
        finally:
            context.replicas.roles_taken()
        if refused():
            return
        if request.full:
            _stop_all_but(context, request)
            _end_strays(context, request)
            context.replicas.unfence()
        call.respond(LeaderAndIsrResponse(partitions=outcomes))

    context.orders.submit({item.topic for item in request.partitions}, apply)


def _stop_all_but(context: BrokerContext, request: LeaderAndIsrRequest) -> None:
    named = {TopicPartition(item.topic, item.partition) for item in request.partitions}
    for partition in list(context.replicas):
        if partition.topic_partition not in named:
            context.replicas.stop(partition.topic_partition, delete=False)


def _end_strays(context: BrokerContext, request: LeaderAndIsrRequest) -> None:
    """Replicas that went to other brokers while this one was away are deleted: the controller does
    not wait for the dead (R-CTL8). Those of which it knows nothing may be of topics that are gone.
    """
    named = {TopicPartition(item.topic, item.partition) for item in request.partitions}
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
    def apply() -> Iterator[None]:
        outcomes = []
        for item in request.partitions:
            refusal = _refusal(context, request)
            if refusal is not ErrorCode.NONE:
                call.respond(StopReplicaResponse(error_code=int(refusal)))
                return
            code = _stop(context, TopicPartition(item.topic, item.partition), item.delete)
            outcomes.append(
                PartitionOutcome(topic=item.topic, partition=item.partition, error_code=int(code))
            )
            yield None
        for topic in {item.topic for item in request.partitions if item.delete}:
            context.topic_configs.forget(topic)
        call.respond(StopReplicaResponse(partitions=outcomes))

    context.orders.submit(set(), apply)


def _stop(context: BrokerContext, tp: TopicPartition, delete: bool) -> ErrorCode:
    try:
        context.replicas.stop(tp, delete=delete)
    except LogStorageError as failure:
        log.error("replica of %s not deleted: %s", tp, failure)
        # Only a folder that failed makes the controller wait for a restart of this broker.
        failed = isinstance(failure, LogFolderError)
        return failure.code if failed else ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def update_metadata(context: BrokerContext, call: Call, request: UpdateMetadataRequest) -> None:
    refusal = _refusal(context, request)
    if refusal is ErrorCode.NONE:
        context.metadata.update(request)
        # Who waits for a replica that has died waits no longer.
        for partition in context.replicas.led_here():
            if len(partition.deletion_waiters):
                partition.deletion_waiters.wake()
        for topic in request.removed_topics:
            context.topic_configs.forget(topic)
        if request.removed_topics:
            removed = frozenset(request.removed_topics)
            context.group_coordinators.tell_all(TopicsDeleted(topics=removed))
    call.respond(UpdateMetadataResponse(error_code=int(refusal)))
