"""FindCoordinator: any broker answers for itself, since no group has state in this version.

Rule: clients with assigned partitions get on without a group's state; whoever needs it is told at
once (`groups`), instead of looking for a coordinator for ever. Transactions are refused here.
"""

from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.find_coordinator import FindCoordinatorResponse

FIRST_VERSION_WITH_MANY_KEYS = 4
GROUP = 0

_NO_TRANSACTIONS = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_NO_TRANSACTIONS_TEXT = "transactions are not available in this version"


def handle(context: BrokerContext, call: Call, request: Any) -> None:
    if call.version >= FIRST_VERSION_WITH_MANY_KEYS:
        coordinators = [
            FindCoordinatorResponse.Coordinator(key=key, **_answer(context, request))
            for key in request.coordinator_keys
        ]
        call.respond(FindCoordinatorResponse(coordinators=coordinators))
    else:
        call.respond(FindCoordinatorResponse(**_answer(context, request)))


def _answer(context: BrokerContext, request: Any) -> dict[str, Any]:
    this = context.metadata.brokers.get(context.broker_id)
    if request.key_type != GROUP:
        code, text = _NO_TRANSACTIONS, _NO_TRANSACTIONS_TEXT
    elif this is None:
        code, text = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), "the broker is starting"
    else:
        return {
            "error_code": 0,
            "error_message": None,
            "node_id": this.broker_id,
            "host": this.host,
            "port": this.port,
        }
    return {"error_code": code, "error_message": text, "node_id": -1, "host": "", "port": -1}
