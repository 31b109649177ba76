"""DescribeLogDirs: the log dirs of this broker, with size and lag of each replica. Source:
KIP-113."""

import shutil
from collections.abc import Generator, Sequence
from pathlib import Path

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

UNKNOWN_BYTES = -1

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Result.DescribeLogDirsTopic
_Partition = _Topic.DescribeLogDirsPartition


def handle(
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
    """The size of its file system, and how much of it a broker may still write (KIP-827)."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return usage.total, usage.free


def _asked(request: DescribeLogDirsRequest) -> Generator[None, None, set[TopicPartition] | None]:
    """The partitions that are asked for; None: all."""
    if request.topics is None:
        return None
    asked = set()
    for topic in request.topics:
        for number in topic.partitions:
            asked.add(TopicPartition(topic.topic, number))
            yield None
    return asked
