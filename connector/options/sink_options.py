"""The options of the sink.

Source: the options of Spark's Kafka connector; R-SPARK2, R-SPARK3.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from connector.errors import OptionError
from connector.options.avro_options import AvroSinkOptions, parse_avro_sink
from connector.options.connection_options import ConnectionOptions, parse_connection
from connector.options.given_options import (
    INT32_MAX,
    INT64_MAX,
    GivenOptions,
    bad_option,
    parse_names,
)
from connector.options.origin_options import OriginOptions, parse_origin
from storage_engine.core.ids import topic_name_problem

DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
DEFAULT_BATCH_BYTES = 512 * 1024
"""Size of the sink's record batches before compression, well under Kafka's default of
max.message.bytes, 1 MiB."""

DEFAULT_TYPED_BATCH_BYTES = 1_000_000
"""The size for typed topics: each column of each batch has a cost of its own, so batches are nearly
as large as Kafka's default allows: beside 512 KiB, 1.1 to 1.4 times as many rows a second of
processor time, in two pairs of runs on a busy machine."""

DEFAULT_TRANSACTION_TIMEOUT_MS = 60 * 60 * 1000
"""Transactions of a micro-batch are aborted this long after the last request of any of its tasks.
"""

MAX_TRANSACTION_TIMEOUT_MS = 24 * 60 * 60 * 1000
"""The most that the brokers allow."""

MAX_SINK_ID_LENGTH = 249
"""The longest `sinkId`: the length of the longest name of a topic."""

MAX_BATCH_BYTES = 64 * 1024 * 1024
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_PARTITIONS = 100_000
MAX_REPLICATION_FACTOR = 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreation:
    """How a topic with the columns of the rows is made, where there is none yet."""

    key: tuple[str, ...]
    """The columns of the key; none: rows have no key."""

    partitions: int | None
    replication_factor: int | None
    """None, also in `partitions`: the brokers' default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of the sink, parsed. Where `topic` is None the column `topic` names each row's
    topic."""

    connection: ConnectionOptions
    topic: str | None
    exactly_once: bool
    sink_id: str | None
    """The name under which the cluster keeps what this sink has committed. None stands for the id
    of the query, or for a new name in a batch write."""

    batch_id: int | None
    """The number of a batch write that may be repeated. It needs `sink_id`."""

    sink_part: str
    """The part of the sink in which `batch_id` counts. The default is the option `topic`."""

    origin: OriginOptions | None
    """The columns by which the sink recognizes rows that it already holds. It needs `sink_id`."""

    creation: TopicCreation | None
    """How to make the topic that does not exist yet. None: it has to exist."""

    transaction_timeout_ms: int
    acks: int
    """-1: all in-sync replicas."""

    compression: str
    batch_bytes: int
    typed_batch_bytes: int
    """The size of record batches for a typed topic, before compression."""

    delivery_timeout_ms: int
    avro: AvroSinkOptions | None
    """How rows are written as Avro; None: keys and values are bytes, or typed."""

    notes: tuple[str, ...]
    """Warnings for options that were given and have no effect."""


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
            f"'acks' = '{text}' can't be used with exactly-once: leave it out, "
            "or set deliveryGuarantee=at-least-once",
        )
    batch_bytes = given.integer("batch.size", low=1, high=MAX_BATCH_BYTES)
    timeout_ms = given.integer("transaction.timeout.ms", low=1000, high=MAX_TRANSACTION_TIMEOUT_MS)
    connection = parse_connection(given)
    return SinkOptions(
        connection=connection,
        topic=topic,
        exactly_once=exactly_once,
        sink_id=_sink_id(given),
        batch_id=_batch_id(given),
        sink_part=_sink_part(given, topic),
        origin=parse_origin(given, connection),
        creation=_creation(given, topic),
        transaction_timeout_ms=timeout_ms or DEFAULT_TRANSACTION_TIMEOUT_MS,
        acks=acks,
        compression=given.choice("compression.type", COMPRESSIONS) or "none",
        batch_bytes=batch_bytes or DEFAULT_BATCH_BYTES,
        typed_batch_bytes=batch_bytes or DEFAULT_TYPED_BATCH_BYTES,
        delivery_timeout_ms=given.integer("delivery.timeout.ms", low=1, high=INT32_MAX)
        or DEFAULT_DELIVERY_TIMEOUT_MS,
        avro=parse_avro_sink(given, topic=topic),
        notes=given.notes,
    )


def _creation(given: GivenOptions, topic: str | None) -> TopicCreation | None:
    details = ("topic.key", "topic.partitions", "topic.replication.factor")
    if not given.boolean("createTopic", default=False):
        for name in details:
            if given.text(name) is not None:
                raise OptionError(
                    "MISSING_OPTION",
                    f"'{name}' says how a topic is made: set createTopic=true, or leave it out",
                )
        return None
    if topic is None:
        raise OptionError(
            "MISSING_OPTION", "'createTopic' needs 'topic', the name of the topic to be made"
        )
    key = given.text("topic.key")
    return TopicCreation(
        key=() if key is None else parse_names("topic.key", key),
        partitions=given.integer("topic.partitions", low=1, high=MAX_PARTITIONS),
        replication_factor=given.integer(
            "topic.replication.factor", low=1, high=MAX_REPLICATION_FACTOR
        ),
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
            "'sinkPart' needs 'batchId', because the numbers of batch writes are counted in each "
            "part: set that, or leave 'sinkPart' out",
        )
    return part


def _batch_id(given: GivenOptions) -> int | None:
    batch_id = given.integer("batchId", low=0, high=INT64_MAX)
    if batch_id is not None and given.text("sinkId") is None:
        raise OptionError(
            "MISSING_OPTION",
            "'batchId' needs 'sinkId', the name of the sink in which batches are counted",
        )
    return batch_id
