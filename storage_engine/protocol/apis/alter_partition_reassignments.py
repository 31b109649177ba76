"""AlterPartitionReassignments: moves partitions to other replicas, or cancels that (KIP-455).

Versions: 0 flexible. 1 whether the number of replicas may change.

    request.timeout_ms; request.topics: name, partitions (partition_index, replicas, None to cancel)
    AlterPartitionReassignmentsResponse(error_code=0, error_message=None, responses=[
        AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name="t", partitions=[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse
                .ReassignablePartitionResponse(
                    partition_index=0, error_code=0, error_message=None)])])

The attributes are those of Kafka's AlterPartitionReassignmentsRequest.json and -Response.json.
"""

from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "AlterPartitionReassignmentsRequest", "AlterPartitionReassignmentsResponse"]

API = kafka_python_api(45, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse)
