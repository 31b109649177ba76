"""Heartbeat: a member of a group reports that it is alive.

Versions: 4 flexible. The attributes are those of Kafka's HeartbeatRequest.json and
HeartbeatResponse.json.
"""

from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "HeartbeatRequest", "HeartbeatResponse"]

API = kafka_python_api(12, HeartbeatRequest, HeartbeatResponse)
