"""The table of all options of the format: their sides, and how it treats them. No name is ignored
silently: it works, or an error names it, or the log warns that it has no effect.

Source: the options of Spark's Kafka connector.
"""

import difflib
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from connector.errors import OptionError
from connector.options.registry_names import REGISTRY_KEYS
from storage_engine.client.security.security_rows import JAVA_ONLY, KERBEROS, SECURITY_KEYS

Side = Literal["source", "sink"]

CLIENT_PREFIX = "kafka."
"""Settings of a Kafka client carry this prefix in Spark's Kafka connector. Here it is optional."""


TABLE_PREFIX = "table."
"""Options of the source whose names end as the user's topics and object store have it."""


class Status(enum.Enum):
    """How the format treats an option: it works, is ignored with a warning, or is an error."""

    WORKS = enum.auto()
    NO_EFFECT = enum.auto()
    REFUSED = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionEntry:
    """An option. `client` marks a setting of a Kafka client, which may carry the prefix
    `kafka.`."""

    name: str
    sides: tuple[Side, ...]
    status: Status = Status.WORKS
    client: bool = False
    why: str = ""


_BOTH: tuple[Side, ...] = ("source", "sink")
_SOURCE: tuple[Side, ...] = ("source",)
_SINK: tuple[Side, ...] = ("sink",)


def _works(sides: tuple[Side, ...], *names: str, client: bool = False) -> list[OptionEntry]:
    return [OptionEntry(name=name, sides=sides, client=client) for name in names]


def _client(status: Status, why: str, *names: str) -> list[OptionEntry]:
    return [
        OptionEntry(name=name, sides=_BOTH, status=status, client=True, why=why) for name in names
    ]


_ENTRIES: list[OptionEntry] = [
    *_works(_BOTH, "bootstrap.servers", "client.id", "request.timeout.ms", client=True),
    *_works(_BOTH, "metadata.max.age.ms", client=True),
    *_works(_SOURCE, "subscribe", "assign", "subscribePattern"),
    *_works(_SOURCE, "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *_works(_SOURCE, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *_works(_SOURCE, "startingOffsetsByTimestampStrategy", "failOnDataLoss", "includeHeaders"),
    *_works(_SOURCE, "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *_works(_SOURCE, "minPartitions", "maxRecordsPerPartition", "isolationLevel"),
    *_works(_SOURCE, "kafkaConsumer.pollTimeoutMs", "columns", "maxBytesPerPartition"),
    *_works(_SOURCE, "minRecordsPerPartition"),
    *_works(_SOURCE, "groupIdPrefix", "where", "table"),
    *_works(_SOURCE, "group.id", client=True),
    *_works(_SOURCE, "isolation.level", "max.partition.fetch.bytes", client=True),
    *_works(_SINK, "topic", "deliveryGuarantee", "sinkId", "batchId", "sinkPart"),
    *_works(_SINK, "idempotentKey", "originServers"),
    *_works(_SINK, "createTopic", "topic.key", "topic.partitions", "topic.replication.factor"),
    *_works(_SINK, "transaction.timeout.ms", client=True),
    *_works(_SINK, "acks", "compression.type", "batch.size", "delivery.timeout.ms", client=True),
    *_works(_BOTH, "value.format", "key.format", "value.schema.version", "key.schema.version"),
    *_works(_BOTH, *REGISTRY_KEYS),
    *_works(_SOURCE, "value.schema.subject", "key.schema.subject", "value.schema.evolution"),
    *_works(_SOURCE, "mode"),
    *_works(_SINK, "value.schema", "key.schema", "use.latest.version", "auto.register.schemas"),
    *_works(_SINK, "value.subject.name.strategy", "key.subject.name.strategy"),
    *_works(_SINK, "normalize.schemas"),
    # Spark itself puts these two among the options of a streaming sink.
    *_works(_SINK, "checkpointLocation", "queryName"),
    *(
        OptionEntry(
            name=name,
            sides=_SOURCE,
            status=Status.NO_EFFECT,
            why="offsets are asked for again until request.timeout.ms",
        )
        for name in ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
    ),
    *_client(Status.REFUSED, "use startingOffsets instead", "auto.offset.reset"),
    *_client(
        Status.REFUSED,
        "keys and values are bytes; convert them with functions of Spark",
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
    ),
    *_client(Status.REFUSED, "Spark's checkpoint keeps the offsets", "enable.auto.commit"),
    *_client(Status.REFUSED, "interceptors are Java classes", "interceptor.classes"),
    *_client(Status.REFUSED, "the sink has its own partitioner", "partitioner.class"),
    *_client(
        Status.REFUSED,
        "the sink manages transactions itself",
        "transactional.id",
    ),
    # The settings of security, whether inline or in a file.
    *_works(_BOTH, *sorted(SECURITY_KEYS), client=True),
    *_works(_BOTH, "client.config.file"),
    *_client(
        Status.NO_EFFECT,
        "it chooses among Java's implementations",
        *sorted(JAVA_ONLY - KERBEROS),
    ),
    *_client(Status.REFUSED, "Kerberos is not supported; use SCRAM-SHA-512", *sorted(KERBEROS)),
    *_client(Status.REFUSED, "it is a class of Java", "sasl.client.callback.handler.class"),
    *_client(
        Status.NO_EFFECT,
        "the client of this format tunes itself",
        "auto.commit.interval.ms",
        "buffer.memory",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "enable.idempotence",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.poll.interval.ms",
        "max.poll.records",
        "max.request.size",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
    ),
]

OPTIONS: Mapping[str, OptionEntry] = {entry.name.lower(): entry for entry in _ENTRIES}
"""The options by name in lower case without prefix: Spark's options are case-insensitive."""


_OF_A_TABLE = frozenset({"provider", "owner", "comment", "collation", "is_managed_location"})
"""The properties of a table that Spark adds to the options with CREATE TABLE."""

_COPY_PREFIX = "option."
"""The prefix of the second copy of each option that CREATE TABLE names."""


def without_table_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The options without what Spark adds of its own in CREATE TABLE … USING headrace. Where the
    words come from elsewhere they are options like any other."""
    lowered = {key.lower(): text for key, text in options.items()}
    if lowered.get("provider", "").lower() != "headrace":
        return dict(options)
    return {
        key: text
        for key, text in options.items()
        if key.lower() not in _OF_A_TABLE
        and not (
            key.lower().startswith(_COPY_PREFIX)
            and lowered.get(key.lower().removeprefix(_COPY_PREFIX)) == text
        )
    }


def lookup(key: str, *, side: Side) -> OptionEntry:
    """The entry of an option that is accepted on `side`. OptionError for one that is not."""
    lowered = key.lower()
    bare = lowered.removeprefix(CLIENT_PREFIX)
    entry = OPTIONS.get(bare)
    if entry is None and lowered.startswith(TABLE_PREFIX) and lowered != TABLE_PREFIX:
        entry = OptionEntry(name=lowered, sides=_SOURCE)
    if entry is None or (bare != lowered and not entry.client):
        raise OptionError("UNKNOWN_OPTION", _unknown(key, side=side)) from None
    if side not in entry.sides:
        raise OptionError(
            "WRONG_OPTION",
            f"'{entry.name}' is an option of the {entry.sides[0]}, not of the {side}",
        )
    if entry.status is Status.REFUSED:
        raise OptionError("REFUSED_OPTION", f"'{entry.name}' can't be set: {entry.why}")
    return entry


def _unknown(key: str, *, side: Side) -> str:
    names = {
        name: entry.name
        for name, entry in OPTIONS.items()
        if side in entry.sides and entry.status is Status.WORKS
    }
    lowered = key.lower().removeprefix(CLIENT_PREFIX)
    nearest = difflib.get_close_matches(lowered, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{names[nearest[0]]}'?" if nearest else ""
    return f"'{key}' is not an option of the {side}{hint}"
