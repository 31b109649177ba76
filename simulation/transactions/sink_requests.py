"""The requests of the exactly-once sink, as simulated tasks and drivers send them: the only module
with their fields.

Source: R-SPARK2.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import abort_members, batch_heartbeat, commit_batch, join_batch

MemberId = tuple[int, int]
"""The producer id and epoch."""


class BatchName(NamedTuple):
    """A micro-batch of a query on a sink."""

    sink: str
    query: str
    number: int


class SinkRequest(NamedTuple):
    """A request with its spec and version."""

    spec: Any
    version: int
    message: Any


def join(name: BatchName, *, timeout_ms: int, nonce: int) -> SinkRequest:
    message = join_batch.JoinBatchRequest(
        sink=name.sink,
        query=name.query,
        batch=name.number,
        timeout_ms=timeout_ms,
        nonce=UUID(int=nonce),
    )
    return SinkRequest(join_batch.API, 0, message)


def commit(
    name: BatchName,
    members: frozenset[MemberId],
    *,
    drained: int,
    origins: Mapping[TopicPartition, int],
) -> SinkRequest:
    message = commit_batch.CommitBatchRequest(
        sink=name.sink,
        query=name.query,
        batch=name.number,
        members=members,
        drained=drained,
        origins=origins,
    )
    return SinkRequest(commit_batch.API, 0, message)


def heartbeat(name: BatchName) -> SinkRequest:
    message = batch_heartbeat.BatchHeartbeatRequest(
        sink=name.sink, query=name.query, batch=name.number
    )
    return SinkRequest(batch_heartbeat.API, 0, message)


def abort(name: BatchName, members: frozenset[MemberId]) -> SinkRequest:
    message = abort_members.AbortMembersRequest(sink=name.sink, query=name.query, members=members)
    return SinkRequest(abort_members.API, 0, message)
