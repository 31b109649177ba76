"""Create, list, describe, alter and delete topics, and delete their oldest records.

actions:
  create NAME          create a topic
  list                 print the names of all topics
  describe [NAME]      print partitions, leaders, replicas and settings of one topic, or of all
  alter NAME           add partitions to a topic, or change its settings or columns
  delete-records NAME  delete the records below an offset
  delete NAME          delete a topic and its records

examples:
  headrace topics create flights --bootstrap-server 127.0.0.1:9092 --partitions 3
  headrace topics create trips --bootstrap-server 127.0.0.1:9092 --key id \\
      --schema 'id BIGINT NOT NULL, at TIMESTAMP, fare DOUBLE'
  headrace topics describe flights --bootstrap-server 127.0.0.1:9092
  headrace topics alter flights --bootstrap-server 127.0.0.1:9092 --config retention.ms=3600000
  headrace topics delete flights --bootstrap-server 127.0.0.1:9092
"""

import argparse

from storage_engine.client.admin.record_deletion import ALL, delete_records
from storage_engine.client.admin.schemas import (
    alter_schema,
    create_typed_topics,
    schema_from,
)
from storage_engine.client.admin.topics import (
    BROKER_DEFAULT,
    ConfigEntry,
    NewTopic,
    alter_topic_configs,
    create_partitions,
    create_topic,
    delete_topics,
    describe_topic_configs,
)
from storage_engine.client.cluster import Cluster
from storage_engine.client.metadata import TopicMetadata
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.core.typed.column_types import ddl_of
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, TopicSchema, schema_of
from storage_engine.tools.actions import Actions, act_on_cluster
from storage_engine.tools.arguments import (
    add_config,
    add_json,
    add_schema,
    natural_number,
    parse_configs,
    positive_integer,
    schema_text,
)
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.table import print_json, print_rows, write_line

NO_LEADER = -1

MAX_OFFSET = 2**63 - 1
"""The largest offset that a request can carry. The broker refuses offsets beyond the log's end."""

_SOURCES = {
    ConfigSource.UNKNOWN: "unknown",
    ConfigSource.TOPIC: "topic",
    ConfigSource.BROKER: "broker",
    ConfigSource.ALL_BROKERS: "broker",
    ConfigSource.FILE: "broker",
    ConfigSource.DEFAULT: "default",
    ConfigSource.LOGGER: "logger",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace topics`: each action has its own."""
    actions = Actions(parser, "topics")
    _add_create(actions)
    add_json(actions.add("list", _list, "print the names of all topics", "list"))
    _add_describe(actions)
    _add_alter(actions)
    _add_delete_records(actions)
    deleting = actions.add("delete", _delete, "delete a topic and its records", "delete flights")
    deleting.add_argument("name", metavar="NAME", help="an existing topic")


def run(args: argparse.Namespace) -> int:
    """Run `headrace topics`."""
    return act_on_cluster(args)


def _add_create(actions: Actions) -> None:
    parser = actions.add(
        "create",
        _create,
        "create a topic",
        "create flights --bootstrap-server 127.0.0.1:9092 --partitions 3 --replication-factor 3",
    )
    parser.add_argument(
        "name", metavar="NAME", help="name of the new topic: letters, digits, '.', '_' and '-'"
    )
    parser.add_argument(
        "--partitions",
        type=positive_integer,
        default=BROKER_DEFAULT,
        metavar="N",
        help="number of partitions (default: the brokers' num.partitions)",
    )
    parser.add_argument(
        "--replication-factor",
        type=positive_integer,
        default=BROKER_DEFAULT,
        metavar="R",
        help="number of replicas of each partition (default: the brokers' "
        "default.replication.factor)",
    )
    add_schema(parser, "make it a typed topic with these columns")
    parser.add_argument(
        "--key",
        metavar="COLUMNS",
        help="columns, separated by commas, by which rows are partitioned and compacted; they "
        "become NOT NULL",
    )
    add_config(parser, "setting of the topic, such as retention.ms=3600000")
    parser.add_argument(
        "--if-not-exists", action="store_true", help="do nothing when the topic already exists"
    )


def _create(cluster: Cluster, args: argparse.Namespace) -> None:
    configs = parse_configs(args.config)
    schema = _given_schema(args)
    try:
        if schema is None:
            create_topic(cluster, args.name, args.partitions, args.replication_factor, configs)
        else:
            new = NewTopic(
                name=args.name,
                partitions=args.partitions,
                replication_factor=args.replication_factor,
                configs=configs,
            )
            create_typed_topics(cluster, [new], schema)
    except KafkaError as error:
        if not (args.if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
            raise
        write_line(f"topic '{args.name}' exists already")
        return
    partitions = cluster.topic(args.name).partitions
    write_line(
        f"topic '{args.name}' created: {_count(len(partitions), 'partition')}, "
        f"{_count(_replication_factor(cluster.topic(args.name)), 'replica')} each"
    )


def _given_schema(args: argparse.Namespace) -> TopicSchema | None:
    if args.schema is None:
        if args.key is not None:
            raise UsageError("--key names columns of a schema; give --schema, too")
        return None
    key = [] if args.key is None else [name.strip() for name in args.key.split(",")]
    return schema_from(schema_text(args.schema), key)


def _list(cluster: Cluster, args: argparse.Namespace) -> None:
    topics = sorted(cluster.metadata().topics)
    if args.json:
        print_json(topics)
        return
    for topic in topics:
        write_line(topic)


def _add_describe(actions: Actions) -> None:
    parser = actions.add(
        "describe",
        _describe,
        "print the partitions, leaders, replicas and settings of one topic, or of all",
        "describe flights --bootstrap-server 127.0.0.1:9092",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="topic to describe (default: all)")
    add_json(parser)


def _describe(cluster: Cluster, args: argparse.Namespace) -> None:
    if args.name is None:
        topics = sorted(cluster.metadata().topics.values(), key=lambda topic: topic.topic)
    else:
        topics = [cluster.topic(args.name)]
    described = [(topic, describe_topic_configs(cluster, topic.topic)) for topic in topics]
    if args.json:
        print_json([describe_topic(*each) for each in described])
        return
    for each in described:
        _print_description(*each)


def describe_topic(topic: TopicMetadata, settings: dict[str, ConfigEntry]) -> Document:
    """The document of `describe --json` for one topic."""
    schema = _schema(settings)
    return {
        "name": topic.topic,
        "id": str(topic.topic_id),
        "internal": topic.is_internal,
        "replication_factor": _replication_factor(topic),
        "partitions": _partitions(topic),
        "configs": {
            name: {"value": setting.value, "source": _SOURCES[setting.source]}
            for name, setting in sorted(settings.items())
        },
        "schema": None if schema is None else _schema_document(schema),
    }


def _partitions(topic: TopicMetadata) -> list[Document]:
    return [
        {
            "partition": partition.partition,
            "leader": None if partition.leader == NO_LEADER else partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
        }
        for partition in topic.partitions.values()
    ]


def _schema(settings: dict[str, ConfigEntry]) -> TopicSchema | None:
    """The schema of a typed topic; None for another."""
    setting = settings.get(SCHEMA_SETTING)
    return None if setting is None or setting.value is None else schema_of(setting.value)


def _schema_document(schema: TopicSchema) -> Document:
    return {"version": schema.latest.version, "key": _key(schema), "columns": _columns(schema)}


def _key(schema: TopicSchema) -> list[str]:
    return [column.name for column in schema.key_columns(schema.latest)]


def _columns(schema: TopicSchema) -> list[Document]:
    """The columns, hidden ones too."""
    since: dict[int, int] = {}
    for version in schema.versions:
        for column in version.columns:
            since.setdefault(column.column_id, version.version)
    return [
        {
            "id": column.column_id,
            "name": column.name,
            "type": ddl_of(column.type, exact=True),
            "nullable": column.nullable,
            "key": column.column_id in schema.key,
            "hidden": column.hidden,
            "since_version": since[column.column_id],
        }
        for column in schema.latest.columns
    ]


def _print_description(topic: TopicMetadata, settings: dict[str, ConfigEntry]) -> None:
    write_line(
        f"topic {topic.topic} (id {topic.topic_id}): "
        f"{_count(len(topic.partitions), 'partition')}, "
        f"{_count(_replication_factor(topic), 'replica')} each"
    )
    own = [
        f"{name}={setting.value}"
        for name, setting in sorted(settings.items())
        if setting.source is ConfigSource.TOPIC and name != SCHEMA_SETTING
    ]
    write_line("settings of its own: " + (", ".join(own) or "none"))
    schema = _schema(settings)
    if schema is not None:
        _print_schema(schema)
    columns = ("partition", "leader", ("epoch", "leader_epoch"), "replicas", ("in sync", "isr"))
    print_rows(columns, _partitions(topic))
    write_line("")


def _print_schema(schema: TopicSchema) -> None:
    key = ", ".join(_key(schema))
    write_line(f"schema: version {schema.latest.version}, {f'key {key}' if key else 'no key'}")
    flags = ("nullable", "key", "hidden")
    columns = ("id", ("column", "name"), "type", *flags, ("since version", "since_version"))
    print_rows(columns, _columns(schema))


def _add_alter(actions: Actions) -> None:
    parser = actions.add(
        "alter",
        _alter,
        "add partitions to a topic, or change its settings or columns",
        "alter flights --bootstrap-server 127.0.0.1:9092 --partitions 6",
    )
    parser.add_argument("name", metavar="NAME", help="an existing topic")
    parser.add_argument(
        "--partitions",
        type=positive_integer,
        metavar="N",
        help="increase the number of partitions to N; new records of a key can then go to another "
        "partition than before",
    )
    add_schema(
        parser,
        "all columns that a typed topic shall have: new columns are added, types may be widened, "
        "columns that are left out are hidden",
    )
    add_config(parser, "new value of a setting of the topic")
    parser.add_argument(
        "--remove-config",
        action="append",
        default=[],
        metavar="KEY",
        help="remove the topic's own value of a setting, so that the brokers' value applies; "
        "repeatable",
    )


def _alter(cluster: Cluster, args: argparse.Namespace) -> None:
    configs = parse_configs(args.config)
    is_changed = args.partitions is not None or args.schema is not None
    if not is_changed and not configs and not args.remove_config:
        raise UsageError(
            "there is nothing to alter; give --partitions N, --schema TEXT, --config KEY=VALUE or "
            "--remove-config KEY"
        )
    cluster.topic(args.name)
    if args.schema is not None:
        schema = alter_schema(cluster, args.name, schema_text(args.schema))
        write_line(f"topic '{args.name}' has version {schema.latest.version} of its schema")
    if args.partitions is not None:
        create_partitions(cluster, {args.name: args.partitions})
        write_line(f"topic '{args.name}' has {_count(args.partitions, 'partition')}")
    if configs or args.remove_config:
        _change_settings(cluster, args.name, configs, args.remove_config)
        write_line(f"settings of topic '{args.name}' changed")


def _change_settings(
    cluster: Cluster, topic: str, configs: dict[str, str], removed: list[str]
) -> None:
    try:
        alter_topic_configs(cluster, topic, configs, remove=removed)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            raise CommandError(
                f"the brokers of {cluster.bootstrap_servers} can't change the settings of a topic "
                "that exists; give them to 'headrace topics create'"
            ) from None
        raise


def _add_delete_records(actions: Actions) -> None:
    parser = actions.add(
        "delete-records",
        _delete_records,
        "delete the records of partitions below an offset",
        "delete-records flights --bootstrap-server 127.0.0.1:9092 --partition 0 --before 1000",
    )
    parser.add_argument("name", metavar="NAME", help="an existing topic")
    parser.add_argument(
        "--partition",
        type=natural_number,
        metavar="P",
        help="partition to delete from (default: all)",
    )
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument(
        "--before",
        type=natural_number,
        metavar="OFFSET",
        help="delete the records below this offset; needs --partition when the topic has more than "
        "one partition",
    )
    wanted.add_argument("--all", action="store_true", help="delete all committed records")


def _delete_records(cluster: Cluster, args: argparse.Namespace) -> None:
    numbers = list(cluster.topic(args.name).partitions)
    if args.partition is not None:
        numbers = [args.partition]
    elif args.before is not None and len(numbers) > 1:
        raise UsageError("an offset belongs to one partition; give --partition P with --before")
    before = ALL if args.all else min(args.before, MAX_OFFSET)
    starts = delete_records(cluster, {TopicPartition(args.name, n): before for n in numbers})
    for tp, start_offset in sorted(starts.items()):
        write_line(f"{tp} begins at offset {start_offset}")


def _delete(cluster: Cluster, args: argparse.Namespace) -> None:
    delete_topics(cluster, [args.name])
    write_line(f"topic '{args.name}' deleted")


def _replication_factor(topic: TopicMetadata) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
