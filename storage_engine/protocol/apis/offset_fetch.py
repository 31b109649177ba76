"""OffsetFetch: the offsets that a group has stored.

Versions: 6 flexible. The attributes are those of Kafka's OffsetFetchRequest.json and
OffsetFetchResponse.json.
"""

from kafka.protocol.consumer.group import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "OffsetFetchRequest", "OffsetFetchResponse"]

API = kafka_python_api(9, OffsetFetchRequest, OffsetFetchResponse)
