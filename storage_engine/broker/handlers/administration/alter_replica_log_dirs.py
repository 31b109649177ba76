"""AlterReplicaLogDirs: moves replicas of this broker between its log dirs.

Each replica succeeds or fails by itself; done means that the move has begun. Source: KIP-113.
"""

from pathlib import Path

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.replica_moves import ReplicaMoves
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.client_log import ClientLog
from storage_engine.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Partition = _Topic.AlterReplicaLogDirPartitionResult

log = ClientLog(__name__)


def handle(
    replica_moves: ReplicaMoves,
    call: ApiCall[AlterReplicaLogDirsResponse],
    request: AlterReplicaLogDirsRequest,
) -> Steps:
    codes: dict[str, dict[int, ErrorCode]] = {}
    for log_dir in request.dirs:
        for topic in log_dir.topics:
            yield None
            of_topic = codes.setdefault(topic.name, {})
            for number in topic.partitions:
                yield None
                if number in of_topic:
                    # A replica can't be in two log dirs; and each is moved once at most.
                    of_topic[number] = ErrorCode.INVALID_REQUEST
                else:
                    tp = TopicPartition(topic.name, number)
                    refusal = call.refusal()
                    of_topic[number] = refusal or _move(replica_moves, tp, Path(log_dir.path))
    results = []
    for name, of_topic in codes.items():
        yield None
        partitions = []
        for number, code in of_topic.items():
            yield None
            partitions.append(_Partition(partition_index=number, error_code=int(code)))
        results.append(_Topic(topic_name=name, partitions=partitions))
    call.respond(AlterReplicaLogDirsResponse(results=results))


def _move(replica_moves: ReplicaMoves, tp: TopicPartition, path: Path) -> ErrorCode:
    try:
        replica_moves.move(tp, path)
    except KafkaError as failure:
        log.info("", "move refused partition=%s log_dir=%s: %s", tp, path, failure)
        return failure.code
    return ErrorCode.NONE
