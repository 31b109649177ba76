"""DescribeLogDirs: the log directories of a broker and the replicas in them (KIP-113).

Versions: 2 flexible. 3 an error of the whole answer. 4 the size of the file system, and how much of
it is free (KIP-827).

    request.topics: None for all, or topic, partitions (numbers)
    Result = DescribeLogDirsResponse.DescribeLogDirsResult
    Topic = Result.DescribeLogDirsTopic
    DescribeLogDirsResponse(error_code=0, results=[Result(error_code=0, log_dir="/data", topics=[
        Topic(name="t", partitions=[Topic.DescribeLogDirsPartition(
            partition_index=0, partition_size=42, offset_lag=0, is_future_key=False)])])])

The attributes are those of Kafka's DescribeLogDirsRequest.json and DescribeLogDirsResponse.json.
"""

from kafka.protocol.admin.cluster import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DescribeLogDirsRequest", "DescribeLogDirsResponse"]

API = kafka_python_api(35, DescribeLogDirsRequest, DescribeLogDirsResponse)
