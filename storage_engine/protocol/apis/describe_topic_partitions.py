"""DescribeTopicPartitions: topics in the order of their names, some thousand partitions an answer
(KIP-966).

Version 0 flexible.

    DescribeTopicPartitionsResponse(topics=[
        DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
            error_code=0, name="t", topic_id=UUID(…), is_internal=False, partitions=[…],
            topic_authorized_operations=1 << 3 | 1 << 8)], next_cursor=None)

The attributes are those of Kafka's DescribeTopicPartitionsRequest.json and
DescribeTopicPartitionsResponse.json.
"""

from kafka.protocol.admin.topics import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DescribeTopicPartitionsRequest", "DescribeTopicPartitionsResponse"]

API = kafka_python_api(75, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
