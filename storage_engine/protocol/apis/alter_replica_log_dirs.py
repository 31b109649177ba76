"""AlterReplicaLogDirs: moves replicas to other log directories of a broker (KIP-113).

Versions: 2 flexible.

    request.dirs: path, topics (name, partitions)
    AlterReplicaLogDirsResponse(results=[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
        topic_name="t", partitions=[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
            .AlterReplicaLogDirPartitionResult(partition_index=0, error_code=0)])])

The attributes are those of Kafka's AlterReplicaLogDirsRequest.json and
AlterReplicaLogDirsResponse.json.
"""

from kafka.protocol.admin.cluster import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "AlterReplicaLogDirsRequest", "AlterReplicaLogDirsResponse"]

API = kafka_python_api(34, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
