"""FindCoordinator: the coordinator of a group or a transactional id is the leader of its partition
of the topic that keeps the state.

The first request for a kind creates that kind's topic. Source: KIP-98, KIP-699.
"""

from dataclasses import dataclass

from storage_engine.broker.coordinators.coordinators import StateTopic
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.cluster_for_clients import ClusterForClients
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_VERSION_WITH_MANY_KEYS = 4
GROUP = 0
TRANSACTION = 1

_NONE_YET = "the coordinator is not available: ask again"
_UNKNOWN_TYPE = "coordinators are found for groups (0) and transactions (1) only"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorHandler:
    """Answers FindCoordinator."""

    group_topic: StateTopic
    transaction_topic: StateTopic
    cluster: ClusterForClients

    def handle(
        self, call: ApiCall[FindCoordinatorResponse], request: FindCoordinatorRequest
    ) -> Steps:
        if call.version >= FIRST_VERSION_WITH_MANY_KEYS:
            coordinators = []
            for key in request.coordinator_keys:
                coordinators.append(self._answer(call, request.key_type, key))
                yield None
            call.respond(FindCoordinatorResponse(coordinators=coordinators))
        else:
            answer = self._answer(call, request.key_type, request.key)
            call.respond(
                FindCoordinatorResponse(
                    error_code=answer.error_code,
                    error_message=answer.error_message,
                    node_id=answer.node_id,
                    host=answer.host,
                    port=answer.port,
                )
            )

    def _answer(
        self, call: ApiCall[FindCoordinatorResponse], key_type: int, key: str
    ) -> FindCoordinatorResponse.Coordinator:
        found: BrokerInfo | None = None
        code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, _NONE_YET
        topic = {GROUP: self.group_topic, TRANSACTION: self.transaction_topic}.get(key_type)
        if topic is not None:
            topic.learn(create=True)
            found = self._at_listener(call, topic.coordinator_of(key))
        else:
            code, text = ErrorCode.INVALID_REQUEST, _UNKNOWN_TYPE
        if found is None:
            return FindCoordinatorResponse.Coordinator(
                key=key, error_code=int(code), error_message=text, node_id=-1, port=-1
            )
        return FindCoordinatorResponse.Coordinator(
            key=key,
            error_message=None,
            node_id=found.broker_id,
            host=found.host,
            port=found.port,
        )

    def _at_listener(
        self, call: ApiCall[FindCoordinatorResponse], coordinator: BrokerInfo | None
    ) -> BrokerInfo | None:
        """The coordinator as the client can reach it, if it is alive as far as is known."""
        if coordinator is None or coordinator.broker_id in self.cluster.doubts.current():
            return None
        for broker in self.cluster.brokers_at(call.connection.listener_name):
            if broker.broker_id == coordinator.broker_id:
                return broker
        return None
