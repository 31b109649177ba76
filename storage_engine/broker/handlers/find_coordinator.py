"""FindCoordinator: there are no group or transaction coordinators in this version.

Rule: the answer is the retriable COORDINATOR_NOT_AVAILABLE, with which clients that only use
assigned partitions go on.
"""

from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.find_coordinator import FindCoordinatorResponse

_CODE = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
_TEXT = "consumer groups and transactions are not available in this version"

FIRST_VERSION_WITH_MANY_KEYS = 4


def handle(_context: BrokerContext, call: Call, request: Any) -> None:
    if call.version >= FIRST_VERSION_WITH_MANY_KEYS:
        coordinators = [
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=_CODE, error_message=_TEXT
            )
            for key in request.coordinator_keys
        ]
        call.respond(FindCoordinatorResponse(coordinators=coordinators))
    else:
        call.respond(
            FindCoordinatorResponse(
                error_code=_CODE, error_message=_TEXT, node_id=-1, host="", port=-1
            )
        )
