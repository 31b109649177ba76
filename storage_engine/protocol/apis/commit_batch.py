"""CommitBatch: the driver of the exactly-once sink names the task attempts that make up a
micro-batch.

    request    sink, query string; batch int64; members; drained int32; origins
    response   error_code int16; error_message string or null

OK and ALREADY_COMMITTED are success; after a retriable error, or none at all, the identical request
is sent again. One of Headrace's own APIs; version 0. Source: R-SPARK2.
"""

from dataclasses import dataclass, field

from storage_engine.protocol.apis.batch_fields import (
    FIRST_FLEXIBLE,
    BatchResponse,
    Members,
    Origins,
    decode_outcome,
    encode_outcome,
    read_members,
    read_origins,
    write_members,
    write_origins,
)
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_with

KEY = 20_001


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBatchRequest:
    """`drained`: tasks that were told ALREADY_COMMITTED, and wrote nothing."""

    sink: str
    query: str
    batch: int
    members: Members
    drained: int = 0
    origins: Origins = field(default_factory=dict)


def decode_request(_version: int, body: memoryview) -> CommitBatchRequest:
    return decode_with("CommitBatch request", body, True, _read_request)


def _read_request(reader: Reader) -> CommitBatchRequest:
    request = CommitBatchRequest(
        sink=reader.name(),
        query=reader.name(),
        batch=reader.int64(),
        members=read_members(reader),
        drained=reader.int32(),
        origins=read_origins(reader),
    )
    reader.tags()
    return request


def encode_request(_version: int, request: CommitBatchRequest) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.string(request.sink)
    writer.string(request.query)
    writer.int64(request.batch)
    write_members(writer, request.members)
    writer.int32(request.drained)
    write_origins(writer, request.origins)
    writer.tags()
    return [writer.data]


def decode_response(_version: int, body: memoryview) -> BatchResponse:
    return decode_outcome("CommitBatch response", body)


API = ApiSpec(
    key=KEY,
    name="CommitBatch",
    min_version=0,
    max_version=0,
    first_flexible_version=FIRST_FLEXIBLE,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_outcome,
)
