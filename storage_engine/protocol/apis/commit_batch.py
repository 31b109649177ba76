"""CommitBatch: the driver of the exactly-once sink names the task attempts that make up a
micro-batch.

OK and ALREADY_COMMITTED are success; after a retriable error, or none at all, the identical request
is sent again. One of Headrace's own APIs. Source: R-SPARK2.
"""

from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.fields import int16, int32, int64, name, nullable_string
from storage_engine.protocol.apis.micro_batch_fields import (
    UNKNOWN_ROWS,
    ClaimedBy,
    CommittedBy,
    Members,
    Origins,
    claim,
    committed,
    members,
    origins,
    uuid_or_none,
)
from storage_engine.protocol.apis.struct_codec import api


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBatchRequest:
    """`drained` is the number of tasks that got ALREADY_COMMITTED and wrote nothing. `owner` and
    `run` are those of JoinBatch."""

    sink: str = name()
    query: str = name()
    batch: int = int64()
    members: Members = members()
    drained: int = int32()
    origins: Origins = origins()
    owner: str = name()
    run: UUID | None = uuid_or_none()
    claim: ClaimedBy | None = claim()
    rows: int = int64(default=UNKNOWN_ROWS)
    """The number of rows that the members have written."""
    dropped: int = int64(default=UNKNOWN_ROWS)
    """The number of rows that tasks had and did not write: the batch is committed, or the sink has
    them by origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBatchResponse:
    """`committed` is set with ALREADY_COMMITTED."""

    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    committed: CommittedBy = committed()


API = api(20_001, CommitBatchRequest, CommitBatchResponse)
