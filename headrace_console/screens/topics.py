"""Topics: lists, partitions, settings, and changes of them. Lists are made of the watcher's
snapshot, so that 5,000 partitions cost no request.
"""

from collections.abc import Iterable, Mapping
from operator import itemgetter

from headrace_console.cluster.snapshot import NO_ENDS, UNKNOWN_FACTS, Snapshot
from headrace_console.given import Body, bad
from headrace_console.paging import Page, itself
from headrace_console.problem import ConsoleError
from headrace_console.records.found_messages import schema_columns
from headrace_console.screens.overview import unanswered
from storage_engine.client.admin import topics as admin
from storage_engine.client.admin.schemas import create_typed_topics, schema_from
from storage_engine.client.admin.topics import ConfigEntry, NewTopic
from storage_engine.client.cluster import Cluster
from storage_engine.client.metadata import TopicMetadata
from storage_engine.client.topic_schemas import TopicSchemas
from storage_engine.core.ids import INTERNAL_TOPICS, TopicPartition, topic_id_to_text
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.core.typed.column_types import ColumnSpec
from storage_engine.core.typed.ddl import render_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, SchemaColumn, TopicSchema
from storage_engine.tools.document import Document

_SOURCES = {
    ConfigSource.UNKNOWN: "unknown",
    ConfigSource.TOPIC: "topic",
    ConfigSource.BROKER: "dynamic broker",
    ConfigSource.ALL_BROKERS: "dynamic default",
    ConfigSource.FILE: "file",
    ConfigSource.DEFAULT: "default",
    ConfigSource.LOGGER: "logger",
}
_SORTED_BY = ["name", "partitions", "size_bytes", "records", "records_per_s", "under_replicated"]
MOST_PARTITIONS = 10_000
MOST_GROUPS = 100


def topic_list(snapshot: Snapshot, page: Page, *, internal: bool) -> Document:
    """Return a page of topics."""
    rows = [
        topic_row(snapshot, topic)
        for topic in snapshot.metadata.topics.values()
        if internal or not is_internal(topic)
    ]
    paged = page.of(
        rows,
        name=lambda row: str(row["name"]),
        keys={name: itemgetter(name) for name in _SORTED_BY},
        default="name",
    )
    return paged.document(itself, as_of_ms=snapshot.at_ms, unanswered=unanswered(snapshot))


def is_internal(topic: TopicMetadata) -> bool:
    return topic.is_internal or topic.topic in INTERNAL_TOPICS


def topic_row(snapshot: Snapshot, topic: TopicMetadata) -> Document:
    """Return the sums of a topic; None where no leader has answered."""
    partitions = topic.partitions.values()
    tps = [TopicPartition(topic.topic, number) for number in topic.partitions]
    ends = [snapshot.ends.get(tp, NO_ENDS) for tp in tps]
    counts = [
        each.high_watermark - each.start
        for each in ends
        if each.high_watermark is not None and each.start is not None
    ]
    sizes = [snapshot.sizes[tp] for tp in tps if tp in snapshot.sizes]
    rates = [snapshot.rates[tp] for tp in tps if tp in snapshot.rates]
    bytes_per_s = snapshot.topic_bytes_per_s.get(topic.topic)
    return {
        "name": topic.topic,
        "internal": is_internal(topic),
        "typed": snapshot.topic_facts.get(topic.topic, UNKNOWN_FACTS).typed,
        "partitions": len(tps),
        "replication_factor": max((len(each.replicas) for each in partitions), default=0),
        "without_leader": sum(not snapshot.has_leader(each) for each in partitions),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
        "size_bytes": sum(sizes) if sizes else None,
        "records": sum(counts) if counts else None,
        "records_per_s": round(sum(rates), 1) if rates else None,
        "bytes_per_s": None if bytes_per_s is None else round(bytes_per_s, 1),
    }


def known_topic(snapshot: Snapshot, name: str) -> TopicMetadata:
    topic = snapshot.metadata.topics.get(name)
    if topic is None:
        raise ConsoleError(
            "not_found", f"there is no topic '{name}' that you may see; it may have been deleted"
        )
    return topic


def partition_list(snapshot: Snapshot, name: str, page: Page) -> Document:
    """Return a page of a topic's partitions."""
    topic = known_topic(snapshot, name)
    rows = [_partition_row(snapshot, topic, number) for number in topic.partitions]
    paged = page.of(
        rows,
        name=lambda row: str(row["partition"]),
        keys={key: itemgetter(key) for key in ("partition", "records", "size_bytes", "waiting")},
        default="partition",
    )
    return paged.document(itself, as_of_ms=snapshot.at_ms, unanswered=unanswered(snapshot))


def _partition_row(snapshot: Snapshot, topic: TopicMetadata, number: int) -> Document:
    tp, partition = TopicPartition(topic.topic, number), topic.partitions[number]
    ends = snapshot.ends.get(tp, NO_ENDS)
    end, stable, start = ends.high_watermark, ends.stable, ends.start
    rate = snapshot.rates.get(tp)
    brokers = snapshot.metadata.brokers
    return {
        "partition": number,
        "leader": partition.leader if partition.leader in brokers else None,
        "leader_epoch": partition.leader_epoch if partition.leader_epoch >= 0 else None,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "offline": [each for each in partition.replicas if each not in brokers],
        "start_offset": start,
        "end_offset": end,
        "stable_offset": stable,
        "waiting": None if end is None or stable is None else max(0, end - stable),
        "records": None if end is None or start is None else end - start,
        "size_bytes": snapshot.sizes.get(tp),
        "records_per_s": None if rate is None else round(rate, 1),
    }


def topic_document(
    snapshot: Snapshot, cluster: Cluster, name: str, *, dead_letters: bool
) -> Document:
    """Return a topic with its settings and its schema."""
    topic = known_topic(snapshot, name)
    row = topic_row(snapshot, topic)
    known = TopicSchemas(cluster).get(name)
    schema = None if known is None else known.schema
    row["typed"] = schema is not None
    return {
        **row,
        "as_of_ms": snapshot.at_ms,
        "unanswered": unanswered(snapshot),
        "topic_id": topic_id_to_text(topic.topic_id) if topic.topic_id.int else None,
        "schema": None if schema is None else _schema(schema),
        "settings": setting_rows(admin.describe_topic_configs(cluster, name)),
        "dead_letters": dead_letters,
        "groups": _groups(snapshot, name),
    }


def _groups(snapshot: Snapshot, topic: str) -> list[str] | None:
    """Return the groups with offsets in the topic, by name; None: not known yet."""
    if snapshot.groups is None:
        return None
    return sorted(each.group for each in snapshot.groups.values() if topic in each.topics)[
        :MOST_GROUPS
    ]


def _schema(schema: TopicSchema) -> Document:
    latest = schema.latest
    return {
        "version": latest.version,
        "ddl": render_ddl(_spec(column) for column in latest.visible),
        "key": [column.name for column in schema.key_columns(latest)],
        "columns": schema_columns(schema),
    }


def _spec(column: SchemaColumn) -> ColumnSpec:
    return ColumnSpec(name=column.name, type=column.type, nullable=column.nullable)


def setting_rows(entries: Mapping[str, ConfigEntry]) -> list[Document]:
    """Return settings, values that are not defaults first."""
    rows: list[Document] = [
        {
            "name": name,
            "value": entry.value if entry.value is None else entry.value[:2_048],
            "source": _SOURCES[entry.source],
            "is_default": entry.source is ConfigSource.DEFAULT,
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
        }
        for name, entry in entries.items()
        if name != SCHEMA_SETTING
    ]
    return sorted(rows, key=lambda row: (bool(row["is_default"]), str(row["name"])))


def setting_list(entries: Mapping[str, ConfigEntry], page: Page, at_ms: int) -> Document:
    """Return a page of a broker's settings."""
    paged = page.of(
        setting_rows(entries),
        name=lambda row: str(row["name"]),
        keys={"name": itemgetter("name"), "source": lambda row: (row["is_default"], row["name"])},
        default="source",
    )
    return paged.document(itself, as_of_ms=at_ms)


# --- changes


def create(cluster: Cluster, body: Body) -> str:
    """Create a topic, and return its name."""
    name = body.text("name", most=249)
    settings = _given_settings(body.settings("settings"))
    partitions = body.integer_or_none("partitions", least=1, most=MOST_PARTITIONS)
    factor = body.integer_or_none("replication_factor", least=1, most=100)
    topic = NewTopic(
        name=name,
        partitions=admin.BROKER_DEFAULT if partitions is None else partitions,
        replication_factor=admin.BROKER_DEFAULT if factor is None else factor,
        configs=settings,
    )
    ddl, key = body.text_or_none("schema", most=100_000), body.texts("key")
    if ddl is not None:
        create_typed_topics(cluster, [topic], schema_from(ddl, key))
    elif key:
        raise bad("'key' is given without 'schema'; give the schema, too")
    else:
        admin.create_topics(cluster, [topic])
    return name


def _given_settings(settings: Mapping[str, str | None]) -> dict[str, str]:
    for name, value in settings.items():
        if value is None:
            raise bad(f"'settings.{name}' must be a text; leave it out for the default")
    return {name: value for name, value in settings.items() if value is not None}


def alter(cluster: Cluster, name: str, body: Body) -> None:
    """Change settings, or add partitions."""
    body.confirm(name)
    settings = body.settings("settings")
    partitions = body.integer_or_none("partitions", least=1, most=MOST_PARTITIONS)
    if not settings and partitions is None:
        raise bad("no change is given; add 'settings' or 'partitions'")
    if settings:
        changed = {key: value for key, value in settings.items() if value is not None}
        removed: Iterable[str] = [key for key, value in settings.items() if value is None]
        admin.alter_topic_configs(cluster, name, changed, remove=removed)
    if partitions is not None:
        admin.create_partitions(cluster, {name: partitions})


def delete(cluster: Cluster, name: str, body: Body) -> None:
    body.confirm(name)
    admin.delete_topics(cluster, [name])
