"""DescribeSinks: what the coordinators on one broker know of exactly-once sinks: the last commit of
each query, and the task attempts whose transactions are open.

    request    sinks [string], empty: all; producers [int64]: only queries with one of these open
               members, empty: all; most int32: rows
    response   error_code int16, error_message nullable string, more bool,
               queries [sink string, query string, committed, last int64, markers int32,
                        origins int32, members_total int32, members [member]]
    member     producer_id int64, epoch int16, batch int64, timeout_ms int32, idle_ms int64,
               aborting bool, partitions [topic string, [int32]]

`committed` is as in JoinBatch, and `last` -1 for a query that has not committed. One of Headrace's
own APIs; version 0, flexible (KIP-482). Source: R-CON6.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.micro_batch_fields import (
    UNKNOWN_COMMITTER,
    CommittedBy,
    read_committed,
    write_committed,
)
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_leniently, decode_with

KEY = 20_005

MOST_ROWS = 1_000
"""Queries of one answer."""
MOST_MEMBERS = 100
"""Members of one query that are listed; the others are counted."""
MOST_PARTITIONS = 100
"""Partitions of one member that are listed."""
MOST_NAMES = 1_000
"""Sinks, and producer ids, of one request."""

UNKNOWN_IDLE = -1
NEVER = -1
"""In place of a number of a micro-batch: the query has committed none."""

_MEMBER_BYTES = 33
_QUERY_BYTES = 58


@dataclass(slots=True, kw_only=True)
class DescribeSinksRequest:
    """Names at most MOST_NAMES of each."""

    sinks: Sequence[str] = ()
    producers: Sequence[int] = ()
    most: int = MOST_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMember:
    """A task attempt whose transaction has not ended."""

    producer_id: int
    epoch: int
    batch: int
    timeout_ms: int
    idle_ms: int = UNKNOWN_IDLE
    """Since the last request of any attempt of its micro-batch."""
    aborting: bool = False
    partitions: Sequence[TopicPartition] = ()
    """The first MOST_PARTITIONS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkQuery:
    """One query's commits to one sink."""

    sink: str
    query: str
    committed: CommittedBy = UNKNOWN_COMMITTER
    last: int = NEVER
    markers: int = 0
    """Transactions whose markers are not all written."""
    origins: int = 0
    """Source partitions whose offsets it keeps."""
    members_total: int = 0
    members: Sequence[OpenMember] = ()
    """The first MOST_MEMBERS."""


@dataclass(slots=True, kw_only=True)
class DescribeSinksResponse:
    """By sink and query."""

    error_code: int = 0
    error_message: str | None = None
    more: bool = False
    """There are more than were asked for."""
    queries: Sequence[SinkQuery] = ()


def decode_request(_version: int, body: memoryview) -> DescribeSinksRequest:
    return decode_with("DescribeSinks request", body, True, _read_request)


def _read_request(reader: Reader) -> DescribeSinksRequest:
    request = DescribeSinksRequest(
        sinks=reader.array(1, reader.name),
        producers=reader.array(8, reader.int64),
        most=reader.int32(),
    )
    reader.tags()
    return request


def encode_request(_version: int, request: DescribeSinksRequest) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.count(len(request.sinks))
    for sink in request.sinks:
        writer.string(sink)
    writer.count(len(request.producers))
    for producer_id in request.producers:
        writer.int64(producer_id)
    writer.int32(request.most)
    writer.tags()
    return [writer.data]


def decode_response(_version: int, body: memoryview) -> DescribeSinksResponse:
    return decode_leniently("DescribeSinks response", body, True, _read_response)


def _read_response(reader: Reader) -> DescribeSinksResponse:
    response = DescribeSinksResponse(
        error_code=reader.int16(),
        error_message=reader.nullable_string(),
        more=reader.boolean(),
        queries=reader.array(_QUERY_BYTES, lambda: _read_query(reader)),
    )
    reader.tags()
    return response


def _read_query(reader: Reader) -> SinkQuery:
    # Keyword arguments are evaluated in the order in which they stand, which is that of the wire.
    query = SinkQuery(
        sink=reader.name(),
        query=reader.name(),
        committed=read_committed(reader),
        last=reader.int64(),
        markers=reader.int32(),
        origins=reader.int32(),
        members_total=reader.int32(),
        members=reader.array(_MEMBER_BYTES, lambda: _read_member(reader)),
    )
    reader.tags()
    return query


def _read_member(reader: Reader) -> OpenMember:
    member = OpenMember(
        producer_id=reader.int64(),
        epoch=reader.int16(),
        batch=reader.int64(),
        timeout_ms=reader.int32(),
        idle_ms=reader.int64(),
        aborting=reader.boolean(),
        partitions=_read_partitions(reader),
    )
    reader.tags()
    return member


def _read_partitions(reader: Reader) -> list[TopicPartition]:
    partitions = []
    for _ in range(reader.count(2)):
        topic = reader.name()
        numbers = reader.array(4, reader.int32)
        partitions += [TopicPartition(topic, number) for number in numbers]
    return partitions


def encode_response(_version: int, response: DescribeSinksResponse) -> list[Buffer]:
    writer = Writer(flexible=True)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    writer.boolean(response.more)
    writer.count(len(response.queries))
    for query in response.queries:
        _write_query(writer, query)
    writer.tags()
    return [writer.data]


def _write_query(writer: Writer, query: SinkQuery) -> None:
    writer.string(query.sink)
    writer.string(query.query)
    write_committed(writer, query.committed)
    writer.int64(query.last)
    writer.int32(query.markers)
    writer.int32(query.origins)
    writer.int32(query.members_total)
    writer.count(len(query.members))
    for member in query.members:
        writer.int64(member.producer_id)
        writer.int16(member.epoch)
        writer.int64(member.batch)
        writer.int32(member.timeout_ms)
        writer.int64(member.idle_ms)
        writer.boolean(member.aborting)
        _write_partitions(writer, member.partitions)
        writer.tags()
    writer.tags()


def _write_partitions(writer: Writer, partitions: Sequence[TopicPartition]) -> None:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    writer.count(len(by_topic))
    for topic, numbers in by_topic.items():
        writer.string(topic)
        writer.count(len(numbers))
        for number in numbers:
            writer.int32(number)


API = ApiSpec(
    key=KEY,
    name="DescribeSinks",
    min_version=0,
    max_version=0,
    first_flexible_version=0,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
