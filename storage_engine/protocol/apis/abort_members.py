"""AbortMembers: the driver of the exactly-once sink aborts task attempts, by producer id.

    request    sink, query string; members; write uuid, or zeros
    response   error_code int16; error_message string or null

One of Headrace's own APIs; version 0. Source: R-SPARK2.
"""

from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.micro_batch_fields import (
    FIRST_FLEXIBLE,
    BatchResponse,
    Members,
    decode_outcome,
    encode_outcome,
    read_members,
    read_run,
    write_members,
    write_run,
)
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_with

KEY = 20_003


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortMembersRequest:
    """Names members and never a batch: the driver of an old run would abort the members of the new
    run."""

    sink: str
    query: str
    members: Members
    write: UUID | None = None
    """The named batch write that is given up with them, whether it was committed or not."""


def decode_request(_version: int, body: memoryview) -> AbortMembersRequest:
    return decode_with("AbortMembers request", body, True, _read_request)


def _read_request(reader: Reader) -> AbortMembersRequest:
    request = AbortMembersRequest(
        sink=reader.name(),
        query=reader.name(),
        members=read_members(reader),
        write=read_run(reader),
    )
    reader.tags()
    return request


def encode_request(_version: int, request: AbortMembersRequest) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.string(request.sink)
    writer.string(request.query)
    write_members(writer, request.members)
    write_run(writer, request.write)
    writer.tags()
    return [writer.data]


def decode_response(_version: int, body: memoryview) -> BatchResponse:
    return decode_outcome("AbortMembers response", body)


API = ApiSpec(
    key=KEY,
    name="AbortMembers",
    min_version=0,
    max_version=0,
    first_flexible_version=FIRST_FLEXIBLE,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_outcome,
)
