"""JoinBatch: a task attempt of the exactly-once sink gets a transaction in a micro-batch.

The origins come with ALREADY_COMMITTED too, without a producer id, so that a task that drops rows
can check that they are among them. The nonce only distinguishes attempts in logs: each request gets
a producer id of its own. One of Headrace's own APIs. Source: R-SPARK2.
"""

from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.fields import int16, int32, int64, name, nullable_string, uuid
from storage_engine.protocol.apis.micro_batch_fields import (
    ClaimedBy,
    CommittedBy,
    Origins,
    claim,
    committed,
    origins,
    uuid_or_none,
)
from storage_engine.protocol.apis.struct_codec import api


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinBatchRequest:
    """`sink`, `query` and `batch` are the sink id, the query id and Spark's batch id."""

    sink: str = name()
    query: str = name()
    batch: int = int64()
    timeout_ms: int = int32()
    nonce: UUID = uuid()
    owner: str = name()
    """The streaming query that a named batch write is a part of; empty: none."""
    run: UUID | None = uuid_or_none()
    """The run of the streaming query."""
    claim: ClaimedBy | None = claim()
    """The claim of a named batch write that is a part of a streaming query; None for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinBatchResponse:
    """ALREADY_COMMITTED is a success: the task reads its rows to the end and writes none."""

    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16(default=-1)
    origins: Origins = origins()
    committed: CommittedBy = committed()


API = api(20_000, JoinBatchRequest, JoinBatchResponse)
