"""DeleteRecords: moves the start of partitions up to an offset; -1 means the high watermark.

Versions: 2 flexible.

    request.topics: name, partitions (partition_index, offset); request.timeout_ms
    DeleteRecordsResponse(topics=[DeleteRecordsResponse.DeleteRecordsTopicResult(
        name="t", partitions=[DeleteRecordsResponse.DeleteRecordsTopicResult
            .DeleteRecordsPartitionResult(partition_index=0, low_watermark=5, error_code=0)])])

The attributes are those of Kafka's DeleteRecordsRequest.json and DeleteRecordsResponse.json.
"""

from kafka.protocol.admin.topics import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DeleteRecordsRequest", "DeleteRecordsResponse"]

API = kafka_python_api(21, DeleteRecordsRequest, DeleteRecordsResponse)
