"""CreateTopics: creates topics, with a number of partitions or with an assignment.

Versions: 4 num_partitions and replication_factor -1 for the broker's defaults. 5 flexible; the
answer has partitions, replication factor and settings (KIP-525). 7 topic ids.

    request.topics: name, num_partitions, replication_factor, assignments (partition_index,
    broker_ids),
        configs (name, value)
    request.timeout_ms, request.validate_only
    Result = CreateTopicsResponse.CreatableTopicResult
    CreateTopicsResponse(topics=[Result(
        name="t", topic_id=uuid, error_code=0, error_message=None, num_partitions=3,
        replication_factor=3, configs=[Result.CreatableTopicConfigs(
            name="k", value="v", read_only=False, config_source=5, is_sensitive=False)])])

The attributes are those of Kafka's CreateTopicsRequest.json and CreateTopicsResponse.json.
"""

from kafka.protocol.admin.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "CreateTopicsRequest", "CreateTopicsResponse"]

API = kafka_python_api(19, CreateTopicsRequest, CreateTopicsResponse)
