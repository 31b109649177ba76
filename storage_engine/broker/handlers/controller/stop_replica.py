"""StopReplica (key 5): the controller says which replicas this broker stops, or deletes.

Orders are admitted and carried out like those of `leader_and_isr`. A replica that can't be stopped
does not hinder the others. Source: R-CTL3.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from storage_engine.broker import unexpected
from storage_engine.broker.cluster.order_gate import OrderGate, Orders
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.settings.topic_config import TopicConfigs
from storage_engine.core.errors import ErrorCode, LogDirError, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.order_answers import PartitionOutcome
from storage_engine.protocol.apis.stop_replica import StopReplicaRequest, StopReplicaResponse

log = logging.getLogger(__name__)


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

        def apply() -> Iterator[None]:
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
                yield None
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
    """Stop one replica, and delete it where that is wanted; the error says why it can't be."""
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
