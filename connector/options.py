"""Options, parsed once into typed values. Its one rule: past this module nobody reads a text
option.

Spark hands the names over in lower case, so they are looked up case-insensitively.
Source: Spark's Kafka connector (FACTS.md); INTERFACE.md, "Spark".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from connector.errors import OptionError
from connector.given_options import GivenOptions, bad_option
from connector.offset_specs import (
    AtTimestamp,
    OffsetSpec,
    parse_assign,
    parse_offsets,
    parse_offsets_by_timestamp,
    parse_topics,
)
from connector.schema import ALL_COLUMNS, COLUMNS
from storage_engine.core.ids import TopicPartition, topic_name_problem

DEFAULT_REQUEST_TIMEOUT_MS = 30_000
DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_METADATA_MAX_AGE_MS = 10_000
"""How long a new partition may go unseen; Kafka's 300 s is long for a stream."""

DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
DEFAULT_FETCH_BYTES = 4 * 1024 * 1024
"""Of one partition in one fetch: about 40,000 records of 100 B, the size Spark takes best."""

DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
DEFAULT_BATCH_BYTES = 512 * 1024
"""A record batch of the sink before compression; well under Kafka's max.message.bytes of 1 MiB."""

DEFAULT_TRANSACTION_TIMEOUT_MS = 60 * 60 * 1000
"""From the last sign of life of any task of a micro-batch until what it wrote is given up."""

MAX_TRANSACTION_TIMEOUT_MS = 24 * 60 * 60 * 1000
"""What the brokers allow."""

MAX_SINK_ID_LENGTH = 249
"""As of a topic's name."""

RECORD_COLUMNS = frozenset({"key", "value", "headers"})
"""What a record consists of; no origin of it."""

MAX_GROUP_NAME_LENGTH = 200
"""With a query's own name behind it still one that brokers take."""

MAX_BATCH_BYTES = 64 * 1024 * 1024
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to reach the cluster; equal options share a connection."""

    bootstrap_servers: str
    client_id: str
    request_timeout_ms: int
    metadata_max_age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """All partitions of these topics, also those that are added later."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPattern:
    """All partitions of all topics whose whole name matches."""

    regex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Just these partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = Topics | TopicPattern | Assigned


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What the user asked of the source. `starting` and `ending` are None where nothing was said:
    the defaults of batch and stream differ."""

    connection: ConnectionOptions
    subscription: Subscription
    starting: OffsetSpec | None
    ending: OffsetSpec | None
    fall_back_to_latest: bool
    """Where no record is at or after a starting timestamp: begin at the end instead of failing."""

    fail_on_data_loss: bool
    columns: tuple[str, ...]
    """Those that are yielded, in the order of `schema.ALL_COLUMNS`."""

    isolation_level: str
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    max_bytes_per_partition: int | None
    """By estimate: a task of Spark is to read no more."""

    group_id: str | None
    """Where a stream stores how far it has read, for lag tools."""

    group_id_prefix: str | None
    """The same, with a name of the query's own behind it; `group_id` goes before."""

    poll_timeout_ms: int
    fetch_bytes: int
    notes: tuple[str, ...]
    """Lines for the log: options that were given and have no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginOptions:
    """Which columns say where a row comes from, and whose topics these are."""

    columns: tuple[str, str, str]
    """Of the topic, the partition and the offset; in lower case, as Spark compares names."""

    connection: ConnectionOptions | None
    """To the cluster that knows the topics' ids; None: a topic's name is all there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What the user asked of the sink. `topic` None means: the column `topic` says."""

    connection: ConnectionOptions
    topic: str | None
    exactly_once: bool
    sink_id: str | None
    """Under which name the cluster keeps what this sink has committed; None: a name of its own."""

    batch_id: int | None
    """Of a batch write that may be repeated; with `sink_id` only."""

    sink_part: str
    """Which part of the sink counts it; the option `topic` unless it was said."""

    origin: OriginOptions | None
    """By what a row is dropped that the sink has already; with `sink_id` only."""

    transaction_timeout_ms: int
    acks: int
    """-1 for all."""

    compression: str
    batch_bytes: int
    delivery_timeout_ms: int
    notes: tuple[str, ...]
    """Lines for the log."""


def parse_source_options(options: Mapping[str, str]) -> SourceOptions:
    """OptionError for the first option that is unknown, misspelled or impossible."""
    given = GivenOptions(options, side="source")
    max_offsets = given.integer("maxOffsetsPerTrigger", low=1, high=_INT64_MAX)
    min_offsets = given.integer("minOffsetsPerTrigger", low=1, high=_INT64_MAX)
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            "BAD_OPTION",
            f"'minOffsetsPerTrigger' ({min_offsets}) is greater than "
            f"'maxOffsetsPerTrigger' ({max_offsets})",
        )
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
    return SourceOptions(
        connection=_connection_options(given),
        subscription=_subscription(given),
        starting=_offset_spec(given, "starting"),
        ending=_offset_spec(given, "ending"),
        fall_back_to_latest=strategy == "latest",
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        columns=_columns(given),
        isolation_level=_isolation_level(given),
        max_offsets_per_trigger=max_offsets,
        min_offsets_per_trigger=min_offsets,
        max_trigger_delay_ms=given.duration_ms(
            "maxTriggerDelay", default=DEFAULT_MAX_TRIGGER_DELAY_MS
        ),
        min_partitions=given.integer("minPartitions", low=1, high=_INT32_MAX),
        max_records_per_partition=given.integer("maxRecordsPerPartition", low=1, high=_INT64_MAX),
        max_bytes_per_partition=given.integer("maxBytesPerPartition", low=1, high=_INT64_MAX),
        group_id=_group_name(given, "group.id"),
        group_id_prefix=_group_name(given, "groupIdPrefix"),
        poll_timeout_ms=given.integer("kafkaConsumer.pollTimeoutMs", low=1, high=_INT32_MAX)
        or DEFAULT_POLL_TIMEOUT_MS,
        fetch_bytes=given.integer("max.partition.fetch.bytes", low=1024, high=_INT32_MAX)
        or DEFAULT_FETCH_BYTES,
        notes=given.notes,
    )


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool = False) -> SinkOptions:
    """OptionError for the first option that is unknown, misspelled or impossible."""
    given = GivenOptions(options, side="sink")
    for name in ("batchId", "sinkPart"):
        if is_stream and given.text(name) is not None:
            raise OptionError(
                "WRONG_OPTION",
                f"'{name}' is for batch writes: leave it out, Spark counts the batches of a stream",
            )
    guarantee = given.choice("deliveryGuarantee", ("exactly-once", "at-least-once"))
    exactly_once = guarantee != "at-least-once"
    topic = given.text("topic")
    problem = None if topic is None else topic_name_problem(topic)
    if problem is not None:
        raise OptionError("BAD_OPTION", f"'topic': {problem}")
    for name in ("sinkId", "batchId", "sinkPart", "idempotentKey", "transaction.timeout.ms"):
        if not exactly_once and given.text(name) is not None:
            raise OptionError(
                "BAD_OPTION",
                f"'{name}' belongs to exactly-once delivery: leave it out, "
                "or leave out deliveryGuarantee=at-least-once",
            )
    text = given.choice("acks", ("all", "-1", "1", "0")) or "all"
    acks = -1 if text == "all" else int(text)
    if exactly_once and acks != -1:
        raise OptionError(
            "BAD_OPTION",
            f"'acks' = '{text}' can't be had exactly once: leave it out, "
            "or set deliveryGuarantee=at-least-once",
        )
    timeout_ms = given.integer("transaction.timeout.ms", low=1000, high=MAX_TRANSACTION_TIMEOUT_MS)
    connection = _connection_options(given)
    return SinkOptions(
        connection=connection,
        topic=topic,
        exactly_once=exactly_once,
        sink_id=_sink_id(given),
        batch_id=_batch_id(given),
        sink_part=_sink_part(given, topic),
        origin=_origin(given, connection),
        transaction_timeout_ms=timeout_ms or DEFAULT_TRANSACTION_TIMEOUT_MS,
        acks=acks,
        compression=given.choice("compression.type", COMPRESSIONS) or "none",
        batch_bytes=given.integer("batch.size", low=1, high=MAX_BATCH_BYTES) or DEFAULT_BATCH_BYTES,
        delivery_timeout_ms=given.integer("delivery.timeout.ms", low=1, high=_INT32_MAX)
        or DEFAULT_DELIVERY_TIMEOUT_MS,
        notes=given.notes,
    )


def _sink_id(given: GivenOptions) -> str | None:
    sink_id = given.text("sinkId")
    if sink_id is not None and not 0 < len(sink_id) <= MAX_SINK_ID_LENGTH:
        raise bad_option("sinkId", f"a name of 1 to {MAX_SINK_ID_LENGTH} characters", sink_id)
    return sink_id


def _sink_part(given: GivenOptions, topic: str | None) -> str:
    part = given.text("sinkPart")
    if part is None:
        return topic or ""
    if not 0 < len(part) <= MAX_SINK_ID_LENGTH:
        raise bad_option("sinkPart", f"a name of 1 to {MAX_SINK_ID_LENGTH} characters", part)
    if given.text("batchId") is None:
        raise OptionError(
            "MISSING_OPTION",
            "'sinkPart' needs 'batchId', since a part counts numbers of batch writes: set that, or "
            "leave 'sinkPart' out",
        )
    return part


def _batch_id(given: GivenOptions) -> int | None:
    batch_id = given.integer("batchId", low=0, high=_INT64_MAX)
    if batch_id is not None and given.text("sinkId") is None:
        raise OptionError(
            "MISSING_OPTION", "'batchId' needs 'sinkId', which says whose batches are counted"
        )
    return batch_id


def _origin(given: GivenOptions, sink: ConnectionOptions) -> OriginOptions | None:
    text, servers = given.text("idempotentKey"), given.text("originServers")
    if text is None:
        if servers is not None:
            raise OptionError(
                "MISSING_OPTION", "'originServers' tells of the topics of 'idempotentKey': set that"
            )
        return None
    columns = tuple(name.strip().lower() for name in text.split(","))
    if len(columns) != 3 or len(set(columns)) != 3 or not all(columns):
        raise bad_option("idempotentKey", "three columns such as topic,partition,offset", text)
    if not RECORD_COLUMNS.isdisjoint(columns):
        raise bad_option("idempotentKey", "columns other than key, value and headers", text)
    if given.text("sinkId") is None:
        raise OptionError(
            "MISSING_OPTION",
            "'idempotentKey' needs 'sinkId': the name under which the brokers keep what is "
            "written, also for a query that lost its checkpoint",
        )
    if given.text("batchId") is not None:
        raise OptionError(
            "BAD_OPTION",
            "'batchId' and 'idempotentKey' both say what was written before: leave one of them out",
        )
    connection: ConnectionOptions | None = sink
    if servers is not None and servers.strip().lower() == "none":
        connection = None
    elif servers is not None:
        connection = replace(sink, bootstrap_servers=_servers("originServers", servers))
    return OriginOptions(columns=columns, connection=connection)


def _connection_options(given: GivenOptions) -> ConnectionOptions:
    servers = given.text("bootstrap.servers")
    if servers is None:
        raise OptionError(
            "MISSING_OPTION", "'kafka.bootstrap.servers' must be set, for example host1:9092"
        )
    protocol = given.text("security.protocol")
    if protocol is not None and protocol.strip().upper() != "PLAINTEXT":
        raise OptionError(
            "REFUSED_OPTION",
            f"'kafka.security.protocol' = '{protocol}' is not possible yet, only PLAINTEXT is",
        )
    return ConnectionOptions(
        bootstrap_servers=_servers("kafka.bootstrap.servers", servers),
        client_id=given.text("client.id") or "headrace-spark",
        request_timeout_ms=given.integer("request.timeout.ms", low=1, high=_INT32_MAX)
        or DEFAULT_REQUEST_TIMEOUT_MS,
        metadata_max_age_ms=given.integer("metadata.max.age.ms", low=1, high=_INT32_MAX)
        or DEFAULT_METADATA_MAX_AGE_MS,
    )


def _servers(name: str, text: str) -> str:
    """The same without blanks."""
    addresses = [address.strip() for address in text.split(",") if address.strip()]
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not host or not colon or not port.isdigit() or not 0 < int(port) < 65536:
            raise bad_option(name, "host:port[,host:port…]", text)
    if not addresses:
        raise bad_option(name, "host:port[,host:port…]", text)
    return ",".join(addresses)


def _subscription(given: GivenOptions) -> Subscription:
    names = ("subscribe", "assign", "subscribePattern")
    chosen = [name for name in names if given.text(name) is not None]
    if len(chosen) != 1:
        said = " and ".join(f"'{name}'" for name in chosen) or "none"
        raise OptionError(
            "MISSING_OPTION" if not chosen else "BAD_OPTION",
            f"exactly one of 'subscribe', 'assign' and 'subscribePattern' must be set, not {said}",
        )
    text = given.text(chosen[0]) or ""
    match chosen[0]:
        case "subscribe":
            return Topics(names=parse_topics("subscribe", text))
        case "assign":
            return Assigned(partitions=parse_assign("assign", text))
    try:
        re.compile(text)
    except re.error as error:
        raise bad_option("subscribePattern", f"a regular expression ({error})", text) from None
    return TopicPattern(regex=text)


def _offset_spec(given: GivenOptions, which: str) -> OffsetSpec | None:
    """The most specific of the three ways to say it wins, as in Spark's connector."""
    timestamp_ms = given.integer(f"{which}Timestamp", low=0, high=_INT64_MAX)
    if timestamp_ms is not None:
        return AtTimestamp(timestamp_ms=timestamp_ms)
    by_timestamp = given.text(f"{which}OffsetsByTimestamp")
    if by_timestamp is not None:
        return parse_offsets_by_timestamp(f"{which}OffsetsByTimestamp", by_timestamp)
    offsets = given.text(f"{which}Offsets")
    return None if offsets is None else parse_offsets(f"{which}Offsets", offsets)


def _group_name(given: GivenOptions, name: str) -> str | None:
    text = given.text(name)
    if text is not None and not 0 < len(text) <= MAX_GROUP_NAME_LENGTH:
        raise bad_option(name, f"a name of 1 to {MAX_GROUP_NAME_LENGTH} characters", text)
    return text


def _columns(given: GivenOptions) -> tuple[str, ...]:
    """All of a record but its headers, unless `columns` or `includeHeaders` say otherwise."""
    headers = given.boolean("includeHeaders", default=False)
    text = given.text("columns")
    if text is None:
        return ALL_COLUMNS if headers else COLUMNS
    by_lower_name = {name.lower(): name for name in ALL_COLUMNS}
    asked = {name.strip().lower() for name in text.split(",")} - {""}
    if not asked or not asked <= by_lower_name.keys():
        raise bad_option("columns", f"one or more of {', '.join(ALL_COLUMNS)}", text)
    if given.text("includeHeaders") is not None and headers != ("headers" in asked):
        raise OptionError("BAD_OPTION", "'columns' and 'includeHeaders' contradict each other")
    return tuple(name for lowered, name in by_lower_name.items() if lowered in asked)


def _isolation_level(given: GivenOptions) -> str:
    levels = ("read_committed", "read_uncommitted")
    chosen = {given.choice(name, levels) for name in ("isolationLevel", "isolation.level")}
    chosen.discard(None)
    if len(chosen) > 1:
        raise OptionError(
            "BAD_OPTION", "'isolationLevel' and 'kafka.isolation.level' contradict each other"
        )
    return chosen.pop() or levels[0] if chosen else levels[0]
