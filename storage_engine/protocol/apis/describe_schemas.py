"""DescribeSchemas: the schemas of topics, from any broker.

    request    topics [string]
    response   [topic string, error_code int16, error_message nullable string, topic_id uuid,
               schema nullable string; tagged fields]

The schema is JSON, as in the setting `headrace.schema`; null for a topic that is not typed. One of
Headrace's own APIs; version 0, flexible (KIP-482). A broker without it knows no typed topics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import (
    NO_TOPIC_ID,
    Reader,
    Writer,
    decode_leniently,
    decode_with,
)

KEY = 20_004

MAX_TOPICS = 100
"""The most topics of one request: a schema may have hundreds of kilobytes."""

_ROW_BYTES = 21


@dataclass(slots=True, kw_only=True)
class DescribeSchemasRequest:
    """Names at most MAX_TOPICS."""

    topics: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSchema:
    """What is known of one topic."""

    topic: str
    error_code: int = 0
    error_message: str | None = None
    topic_id: UUID = NO_TOPIC_ID
    """Of the topic whose schema this is: another of its name has another one."""
    schema: str | None = None


@dataclass(slots=True, kw_only=True)
class DescribeSchemasResponse:
    """A row for each topic that was named."""

    topics: Sequence[DescribedSchema]


def decode_request(_version: int, body: memoryview) -> DescribeSchemasRequest:
    return decode_with("DescribeSchemas request", body, True, _read_request)


def _read_request(reader: Reader) -> DescribeSchemasRequest:
    request = DescribeSchemasRequest(topics=reader.array(1, reader.name))
    reader.tags()
    return request


def encode_request(_version: int, request: DescribeSchemasRequest) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.count(len(request.topics))
    for topic in request.topics:
        writer.string(topic)
    writer.tags()
    return [writer.data]


def decode_response(_version: int, body: memoryview) -> DescribeSchemasResponse:
    return decode_leniently("DescribeSchemas response", body, True, _read_response)


def _read_response(reader: Reader) -> DescribeSchemasResponse:
    response = DescribeSchemasResponse(topics=reader.array(_ROW_BYTES, lambda: _read_row(reader)))
    reader.tags()
    return response


def _read_row(reader: Reader) -> DescribedSchema:
    # Keyword arguments are evaluated in the order in which they stand, which is that of the wire.
    row = DescribedSchema(
        topic=reader.name(),
        error_code=reader.int16(),
        error_message=reader.nullable_string(),
        topic_id=reader.uuid(),
        schema=reader.nullable_string(),
    )
    reader.tags()
    return row


def encode_response(_version: int, response: DescribeSchemasResponse) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.count(len(response.topics))
    for row in response.topics:
        writer.string(row.topic)
        writer.int16(row.error_code)
        writer.nullable_string(row.error_message)
        writer.uuid(row.topic_id)
        writer.nullable_string(row.schema)
        writer.tags()
    writer.tags()
    return [writer.data]


API = ApiSpec(
    key=KEY,
    name="DescribeSchemas",
    min_version=0,
    max_version=0,
    first_flexible_version=0,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
