"""DescribeLogDirs: the log dirs of this broker, with size and lag of each replica. Source:
KIP-113.

AlterReplicaLogDirs: moves replicas of this broker between its log dirs.

Each replica succeeds or fails by itself; done means that the move has begun. Source: KIP-113.
"""

import shutil
from collections.abc import Generator, Sequence
from pathlib import Path

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.replicas.replica_moves import ReplicaMoves
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.client_log import ClientLog
from storage_engine.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from storage_engine.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

UNKNOWN_BYTES = -1

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Result.DescribeLogDirsTopic
_Partition = _Topic.DescribeLogDirsPartition


def describe_log_dirs(
    replicas: ReplicaManager,
    log_dirs: Sequence[Path],
    call: ApiCall[DescribeLogDirsResponse],
    request: DescribeLogDirsRequest,
) -> Steps:
    asked = yield from _asked(request)
    rows: dict[Path, dict[str, list[_Partition]]] = {}
    for tp, log in sorted(replicas.logs_here().items()):
        if asked is not None and tp not in asked:
            yield None
            continue
        partition = replicas.get(tp)
        committed = partition.high_watermark if partition is not None else 0
        row = _Partition(
            partition_index=tp.partition,
            partition_size=log.size_in_bytes,
            offset_lag=max(0, committed - log.log_end_offset),
            is_future_key=False,
        )
        yield None
        rows.setdefault(log.directory.parent, {}).setdefault(tp.topic, []).append(row)
        future = replicas.future_of(tp)
        if future is not None:
            row = _Partition(
                partition_index=tp.partition,
                partition_size=future.log.size_in_bytes,
                offset_lag=future.lag,
                is_future_key=True,
            )
            rows.setdefault(future.log_dir.path, {}).setdefault(tp.topic, []).append(row)
    working = set(replicas.working_log_dirs())
    paths = [path.absolute() for path in log_dirs]
    call.respond(
        DescribeLogDirsResponse(
            results=[_described(path, rows.get(path, {}), path in working) for path in paths]
        )
    )


def _described(path: Path, topics: dict[str, list[_Partition]], works: bool) -> _Result:
    code = ErrorCode.NONE if works else ErrorCode.KAFKA_STORAGE_ERROR
    total_bytes, free_bytes = _space(path)
    return _Result(
        error_code=int(code),
        log_dir=str(path),
        total_bytes=total_bytes,
        usable_bytes=free_bytes,
        topics=[_Topic(name=name, partitions=rows) for name, rows in topics.items()]
        if works
        else [],
    )


def _space(path: Path) -> tuple[int, int]:
    """(bytes of the file system, bytes still free for a broker) (KIP-827)."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return usage.total, usage.free


def _asked(request: DescribeLogDirsRequest) -> Generator[None, None, set[TopicPartition] | None]:
    """The requested partitions; None: all."""
    if request.topics is None:
        return None
    asked = set()
    for topic in request.topics:
        for number in topic.partitions:
            asked.add(TopicPartition(topic.topic, number))
            yield None
    return asked


_MovedTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_MovedPartition = _MovedTopic.AlterReplicaLogDirPartitionResult

log = ClientLog(__name__)


def alter_replica_log_dirs(
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
            partitions.append(_MovedPartition(partition_index=number, error_code=int(code)))
        results.append(_MovedTopic(topic_name=name, partitions=partitions))
    call.respond(AlterReplicaLogDirsResponse(results=results))


def _move(replica_moves: ReplicaMoves, tp: TopicPartition, path: Path) -> ErrorCode:
    try:
        replica_moves.move(tp, path)
    except KafkaError as failure:
        log.info("", "move refused partition=%s log_dir=%s: %s", tp, path, failure)
        return failure.code
    return ErrorCode.NONE
