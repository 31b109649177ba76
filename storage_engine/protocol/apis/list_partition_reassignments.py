"""ListPartitionReassignments: which partitions are being moved (KIP-455).

Versions: 0 flexible.

    request.timeout_ms; request.topics: None for all, or name, partition_indexes
    ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[
        ListPartitionReassignmentsResponse.OngoingTopicReassignment(name="t", partitions=[
            ListPartitionReassignmentsResponse.OngoingTopicReassignment
                .OngoingPartitionReassignment(partition_index=0, replicas=[1, 2, 3],
                    adding_replicas=[3], removing_replicas=[1])])])

The attributes are those of Kafka's ListPartitionReassignmentsRequest.json and -Response.json.
"""

from kafka.protocol.admin.topics import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "ListPartitionReassignmentsRequest", "ListPartitionReassignmentsResponse"]

API = kafka_python_api(46, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse)
