"""CreatePartitions: raises the number of partitions of topics to `count`.

Versions: 2 flexible.

    request.topics: name, count, assignments (None, or broker_ids of each new partition)
    request.timeout_ms, request.validate_only
    CreatePartitionsResponse(results=[CreatePartitionsResponse.CreatePartitionsTopicResult(
        name="t", error_code=0, error_message=None)])

The attributes are those of Kafka's CreatePartitionsRequest.json and CreatePartitionsResponse.json.
"""

from kafka.protocol.admin.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "CreatePartitionsRequest", "CreatePartitionsResponse"]

API = kafka_python_api(37, CreatePartitionsRequest, CreatePartitionsResponse)
