"""OffsetDelete: deletes committed offsets of a group (KIP-496).

Versions: none flexible. The attributes are those of Kafka's
OffsetDeleteRequest.json and OffsetDeleteResponse.json.
"""

from kafka.protocol.consumer.group import OffsetDeleteRequest, OffsetDeleteResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "OffsetDeleteRequest", "OffsetDeleteResponse"]

API = kafka_python_api(47, OffsetDeleteRequest, OffsetDeleteResponse)
