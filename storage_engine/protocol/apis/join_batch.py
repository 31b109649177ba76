"""JoinBatch: a task attempt of the exactly-once sink gets a transaction in a micro-batch.

    request    sink, query string; batch int64; timeout_ms int32; nonce uuid;
               owner string; run uuid, or zeros; claim
    response   error_code int16; error_message string or null; producer_id int64; epoch int16;
               origins; committed

The origins come with ALREADY_COMMITTED too, without a producer id, so that a task that drops rows
can check that they are among them. The nonce only distinguishes attempts in logs: each request gets
a producer id of its own. One of Headrace's own APIs. Source: R-SPARK2.
"""

from dataclasses import dataclass, field
from uuid import UUID

from storage_engine.protocol.apis.micro_batch_fields import (
    FIRST_FLEXIBLE,
    UNKNOWN_COMMITTER,
    ClaimedBy,
    CommittedBy,
    Origins,
    read_claim,
    read_committed,
    read_origins,
    read_run,
    write_claim,
    write_committed,
    write_origins,
    write_run,
)
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_leniently, decode_with

KEY = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinBatchRequest:
    """`sink`, `query` and `batch` are the sink id, the query id and Spark's batch id."""

    sink: str
    query: str
    batch: int
    timeout_ms: int
    nonce: UUID
    owner: str = ""
    """The streaming query that a named batch write is a part of; empty: none."""
    run: UUID | None = None
    """The run of the streaming query."""
    claim: ClaimedBy | None = None
    """Of a named batch write that is a part of a streaming query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinBatchResponse:
    """ALREADY_COMMITTED is a success: the task reads its rows to the end and writes none."""

    error_code: int = 0
    error_message: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    origins: Origins = field(default_factory=dict)
    committed: CommittedBy = UNKNOWN_COMMITTER


def decode_request(_version: int, body: memoryview) -> JoinBatchRequest:
    def read(reader: Reader) -> JoinBatchRequest:
        request = JoinBatchRequest(
            sink=reader.name(),
            query=reader.name(),
            batch=reader.int64(),
            timeout_ms=reader.int32(),
            nonce=reader.uuid(),
            owner=reader.name(),
            run=read_run(reader),
            claim=read_claim(reader),
        )
        reader.tags()
        return request

    return decode_with("JoinBatch request", body, True, read)


def encode_request(_version: int, request: JoinBatchRequest) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.string(request.sink)
    writer.string(request.query)
    writer.int64(request.batch)
    writer.int32(request.timeout_ms)
    writer.uuid(request.nonce)
    writer.string(request.owner)
    write_run(writer, request.run)
    write_claim(writer, request.claim)
    writer.tags()
    return [writer.data]


def decode_response(_version: int, body: memoryview) -> JoinBatchResponse:
    def read(reader: Reader) -> JoinBatchResponse:
        response = JoinBatchResponse(
            error_code=reader.int16(),
            error_message=reader.nullable_string(),
            producer_id=reader.int64(),
            producer_epoch=reader.int16(),
            origins=read_origins(reader),
            committed=read_committed(reader),
        )
        reader.tags()
        return response

    return decode_leniently("JoinBatch response", body, True, read)


def encode_response(_version: int, response: JoinBatchResponse) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    writer.int64(response.producer_id)
    writer.int16(response.producer_epoch)
    write_origins(writer, response.origins)
    write_committed(writer, response.committed)
    writer.tags()
    return [writer.data]


API = ApiSpec(
    key=KEY,
    name="JoinBatch",
    min_version=0,
    max_version=0,
    first_flexible_version=FIRST_FLEXIBLE,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
