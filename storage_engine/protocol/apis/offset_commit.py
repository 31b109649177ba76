"""OffsetCommit: stores the offsets of a group.

Versions: 8 flexible. The attributes are those of Kafka's OffsetCommitRequest.json and
OffsetCommitResponse.json.
"""

from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "OffsetCommitRequest", "OffsetCommitResponse"]

API = kafka_python_api(8, OffsetCommitRequest, OffsetCommitResponse)
