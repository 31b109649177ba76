"""ElectLeaders: elects the preferred replicas as leaders, or any replica where none in sync is left
(KIP-460).

Versions: 1 election type (0 preferred, 1 unclean) and an error of the whole answer. 2 flexible.

    request.election_type, request.timeout_ms
    request.topic_partitions: None for all, or topic, partitions (numbers)
    ElectLeadersResponse(error_code=0, replica_election_results=[
        ElectLeadersResponse.ReplicaElectionResult(topic="t", partition_result=[
            ElectLeadersResponse.ReplicaElectionResult.PartitionResult(
                partition_id=0, error_code=0, error_message=None)])])

The attributes are those of Kafka's ElectLeadersRequest.json and ElectLeadersResponse.json.
"""

from kafka.protocol.admin.topics import (
    ElectLeadersRequest,
    ElectLeadersResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "ElectLeadersRequest", "ElectLeadersResponse"]

API = kafka_python_api(43, ElectLeadersRequest, ElectLeadersResponse)
