"""FindCoordinator: of a group or a transactional id, the leader of its part of the topic that keeps
the state.

Rule: the first question of a kind makes that kind's topic. Source: KIP-98, KIP-699.
"""

from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.find_coordinator import FindCoordinatorResponse

FIRST_VERSION_WITH_MANY_KEYS = 4
GROUP = 0
TRANSACTION = 1

_NONE_YET = "the coordinator is not available: ask again"
_UNKNOWN_TYPE = "coordinators are found for groups (0) and transactions (1) only"


def handle(context: BrokerContext, call: Call, request: Any) -> Steps:
    if call.version >= FIRST_VERSION_WITH_MANY_KEYS:
        coordinators = []
        for key in request.coordinator_keys:
            answer = _answer(context, request.key_type, key)
            coordinators.append(FindCoordinatorResponse.Coordinator(key=key, **answer))
            yield None
        call.respond(FindCoordinatorResponse(coordinators=coordinators))
    else:
        call.respond(FindCoordinatorResponse(**_answer(context, request.key_type, request.key)))


def _answer(context: BrokerContext, key_type: int, key: str) -> dict[str, Any]:
    found: BrokerInfo | None = None
    code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, _NONE_YET
    topic = {GROUP: context.group_topic, TRANSACTION: context.state_topic}.get(key_type)
    if topic is not None:
        topic.learn(create=True)
        found = topic.coordinator_of(key)
        if found not in context.brokers:
            found = None
    else:
        code, text = ErrorCode.INVALID_REQUEST, _UNKNOWN_TYPE
    if found is None:
        return {
            "error_code": int(code), "error_message": text, "node_id": -1, "host": "", "port": -1,
        }  # fmt: skip
    return {
        "error_code": 0,
        "error_message": None,
        "node_id": found.broker_id,
        "host": found.host,
        "port": found.port,
    }
