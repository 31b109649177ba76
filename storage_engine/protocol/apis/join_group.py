"""JoinGroup: a member enters a group.

Versions: 6 flexible. The attributes are those of Kafka's JoinGroupRequest.json and
JoinGroupResponse.json.
"""

from kafka.protocol.consumer.group import (
    JoinGroupRequest,
    JoinGroupResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "JoinGroupRequest", "JoinGroupResponse"]

API = kafka_python_api(11, JoinGroupRequest, JoinGroupResponse)
