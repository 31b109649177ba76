"""BatchHeartbeat: reports that an attempt of a micro-batch is running, so that no attempt of the
batch times out.

    request    sink, query string; batch int64
    response   error_code int16; error_message string or null

One of Headrace's own APIs; version 0. Source: R-SPARK2.
"""

from dataclasses import dataclass

from storage_engine.protocol.apis.micro_batch_fields import (
    FIRST_FLEXIBLE,
    BatchResponse,
    decode_outcome,
    encode_outcome,
)
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_with

KEY = 20_002


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeartbeatRequest:
    """The fields are those of JoinBatch."""

    sink: str
    query: str
    batch: int


def decode_request(_version: int, body: memoryview) -> BatchHeartbeatRequest:
    return decode_with("BatchHeartbeat request", body, True, _read_request)


def _read_request(reader: Reader) -> BatchHeartbeatRequest:
    request = BatchHeartbeatRequest(sink=reader.name(), query=reader.name(), batch=reader.int64())
    reader.tags()
    return request


def encode_request(_version: int, request: BatchHeartbeatRequest) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.string(request.sink)
    writer.string(request.query)
    writer.int64(request.batch)
    writer.tags()
    return [writer.data]


def decode_response(_version: int, body: memoryview) -> BatchResponse:
    return decode_outcome("BatchHeartbeat response", body)


API = ApiSpec(
    key=KEY,
    name="BatchHeartbeat",
    min_version=0,
    max_version=0,
    first_flexible_version=FIRST_FLEXIBLE,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_outcome,
)
