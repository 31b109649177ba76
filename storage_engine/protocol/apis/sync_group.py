"""SyncGroup: a member gets its part of the group's assignment.

Versions: 4 flexible. The attributes are those of Kafka's SyncGroupRequest.json and
SyncGroupResponse.json.
"""

from kafka.protocol.consumer.group import (
    SyncGroupRequest,
    SyncGroupResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "SyncGroupRequest", "SyncGroupResponse"]

API = kafka_python_api(14, SyncGroupRequest, SyncGroupResponse)
