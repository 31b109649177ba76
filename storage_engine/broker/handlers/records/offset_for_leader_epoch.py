"""OffsetForLeaderEpoch: where a leader epoch ends in the leader's log. Source: KIP-101, KIP-279,
R-REP8."""

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

_AskedPartition = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
_TopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_Answer = _TopicResult.EpochEndOffset


def handle(
    replicas: ReplicaManager,
    call: ApiCall[OffsetForLeaderEpochResponse],
    request: OffsetForLeaderEpochRequest,
) -> Steps:
    topics = []
    for topic in request.topics:
        rows = []
        for item in topic.partitions:
            rows.append(_answer(replicas, topic.topic, item))
            yield None
        topics.append(_TopicResult(topic=topic.topic, partitions=rows))
        yield None
    call.respond(OffsetForLeaderEpochResponse(topics=topics))


def _answer(replicas: ReplicaManager, topic: str, item: _AskedPartition) -> _Answer:
    code, epoch, end_offset = 0, -1, -1
    try:
        tp = TopicPartition(topic, item.partition)
        partition = replicas.leader(tp, item.current_leader_epoch)
        epoch, end_offset = partition.log.reads.end_offset_for_epoch(item.leader_epoch)
    except KafkaError as failure:
        code = int(failure.code)
    return _Answer(
        error_code=code, partition=item.partition, leader_epoch=epoch, end_offset=end_offset
    )
