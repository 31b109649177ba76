"""CommitBatch: the driver of the exactly-once sink names the task attempts that make up a
micro-batch.

    request    sink, query string; batch int64; members; drained int32; origins;
               owner string; run uuid, or zeros; rows, dropped int64
    response   error_code int16; error_message string or null; committed

OK and ALREADY_COMMITTED are success; after a retriable error, or none at all, the identical request
is sent again. One of Headrace's own APIs. Source: R-SPARK2.
"""

from dataclasses import dataclass, field
from uuid import UUID

from storage_engine.protocol.apis.micro_batch_fields import (
    FIRST_FLEXIBLE,
    UNKNOWN_COMMITTER,
    UNKNOWN_ROWS,
    ClaimedBy,
    CommittedBy,
    Members,
    Origins,
    read_claim,
    read_committed,
    read_members,
    read_origins,
    read_run,
    write_claim,
    write_committed,
    write_members,
    write_origins,
    write_run,
)
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_leniently, decode_with

KEY = 20_001


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBatchRequest:
    """`drained` is the number of tasks that got ALREADY_COMMITTED and wrote nothing. `owner` and
    `run` are those of JoinBatch."""

    sink: str
    query: str
    batch: int
    members: Members
    drained: int = 0
    origins: Origins = field(default_factory=dict)
    owner: str = ""
    run: UUID | None = None
    claim: ClaimedBy | None = None
    rows: int = UNKNOWN_ROWS
    """The number of rows that the members have written."""
    dropped: int = UNKNOWN_ROWS
    """The number of rows that tasks had and did not write: the batch is committed, or the sink has
    them by origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBatchResponse:
    """`committed` is set with ALREADY_COMMITTED."""

    error_code: int = 0
    error_message: str | None = None
    committed: CommittedBy = UNKNOWN_COMMITTER


def decode_request(_version: int, body: memoryview) -> CommitBatchRequest:
    def read(reader: Reader) -> CommitBatchRequest:
        request = CommitBatchRequest(
            sink=reader.name(),
            query=reader.name(),
            batch=reader.int64(),
            members=read_members(reader),
            drained=reader.int32(),
            origins=read_origins(reader),
            owner=reader.name(),
            run=read_run(reader),
            claim=read_claim(reader),
            rows=reader.int64(),
            dropped=reader.int64(),
        )
        reader.tags()
        return request

    return decode_with("CommitBatch request", body, True, read)


def encode_request(_version: int, request: CommitBatchRequest) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.string(request.sink)
    writer.string(request.query)
    writer.int64(request.batch)
    write_members(writer, request.members)
    writer.int32(request.drained)
    write_origins(writer, request.origins)
    writer.string(request.owner)
    write_run(writer, request.run)
    write_claim(writer, request.claim)
    writer.int64(request.rows)
    writer.int64(request.dropped)
    writer.tags()
    return [writer.data]


def decode_response(_version: int, body: memoryview) -> CommitBatchResponse:
    def read(reader: Reader) -> CommitBatchResponse:
        response = CommitBatchResponse(
            error_code=reader.int16(),
            error_message=reader.nullable_string(),
            committed=read_committed(reader),
        )
        reader.tags()
        return response

    return decode_leniently("CommitBatch response", body, True, read)


def encode_response(_version: int, response: CommitBatchResponse) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    write_committed(writer, response.committed)
    writer.tags()
    return [writer.data]


API = ApiSpec(
    key=KEY,
    name="CommitBatch",
    min_version=0,
    max_version=0,
    first_flexible_version=FIRST_FLEXIBLE,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
