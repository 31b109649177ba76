"""DeleteTopics: deletes topics, by name or (6) by topic id.

Versions: 4 flexible. 5 error message. 6 `topics` (name or topic_id) instead of `topic_names`.

    DeleteTopicsResponse(responses=[DeleteTopicsResponse.DeletableTopicResult(
        name="t", topic_id=uuid, error_code=0, error_message=None)])

The attributes are those of Kafka's DeleteTopicsRequest.json and DeleteTopicsResponse.json.
"""

from kafka.protocol.admin.topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DeleteTopicsRequest", "DeleteTopicsResponse"]

API = kafka_python_api(20, DeleteTopicsRequest, DeleteTopicsResponse)
