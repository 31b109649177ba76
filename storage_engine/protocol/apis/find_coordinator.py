"""FindCoordinator: the broker that coordinates a group or a transactional id.

Versions: 1 kind of key (0 group, 1 transaction) and error message. 3 flexible. 4 many keys at once
(KIP-699): `coordinator_keys` instead of `key`, and the answer in `coordinators`.

    FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=9092)              # 0-3
    FindCoordinatorResponse(coordinators=[FindCoordinatorResponse.Coordinator(
        key="g", node_id=1, host="h", port=9092, error_code=0, error_message=None)])   # 4

The attributes are those of Kafka's FindCoordinatorRequest.json and FindCoordinatorResponse.json.
"""

from kafka.protocol.metadata.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "FindCoordinatorRequest", "FindCoordinatorResponse"]

API = kafka_python_api(10, FindCoordinatorRequest, FindCoordinatorResponse)
