"""OffsetForLeaderEpoch: where the leader's log ends for a leader epoch (KIP-101, KIP-279, R-REP8).

Versions: 2 the epoch that the client knows. 3 replica id. 4 flexible.

    request.replica_id
    request.topics: topic, partitions (partition, current_leader_epoch, leader_epoch)
    Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    OffsetForLeaderEpochResponse(topics=[Topic(topic="t", partitions=[
        Topic.EpochEndOffset(error_code=0, partition=0, leader_epoch=3, end_offset=70)])])

The attributes are those of Kafka's OffsetForLeaderEpochRequest.json and its response's.
"""

from kafka.protocol.consumer.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "OffsetForLeaderEpochRequest", "OffsetForLeaderEpochResponse"]

API = kafka_python_api(23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
