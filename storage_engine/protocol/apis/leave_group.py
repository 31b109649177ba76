"""LeaveGroup: members leave a group.

Versions: 4 flexible. The attributes are those of Kafka's LeaveGroupRequest.json and
LeaveGroupResponse.json.
"""

from kafka.protocol.consumer.group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "LeaveGroupRequest", "LeaveGroupResponse"]

API = kafka_python_api(13, LeaveGroupRequest, LeaveGroupResponse)
