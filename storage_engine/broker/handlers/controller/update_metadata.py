"""UpdateMetadata (key 6): the controller describes the cluster.

Orders are admitted like those of `leader_and_isr`; the metadata is valid as soon as it is admitted.
Source: R-CTL3.
"""

from dataclasses import dataclass

from storage_engine.broker import unexpected
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.order_gate import OrderGate
from storage_engine.broker.coordinators.coordinators import GroupCoordinators
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.settings.topic_config import TopicConfigs
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import TopicsDeleted
from storage_engine.protocol.apis.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


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
