"""Administers a cluster, its topics and its groups: the public `Admin`.

    from storage_engine.client import Admin, NewTopic

    with Admin({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
        admin.create_topics([NewTopic(name="clicks", partitions=3, replication_factor=3)])
        admin.alter_topic_configs("clicks", {"retention.ms": "3600000"})
        print(admin.describe_group("billing").lag)

A call returns when its effect is visible on the brokers, or raises an error of one line. It follows
leaders, coordinators and controllers that move, up to `default.api.timeout.ms`. Calls of several
threads are done one after the other. Source: KIP-4 and what the methods' modules cite.

error                    what to do
ConfigError              correct the setting or the argument that it names
AuthenticationError      the log-in or a certificate was refused: correct the setting that it names
KafkaError, final        its `code` says why (TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION,
                         NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, INVALID_CONFIG, ...): correct what the
                         text names
OffsetOutOfRangeError    delete_records: a KafkaError; nothing is committed up to there
DeadlineExceededError    brokers were away, or not all of it was seen in time: it may be done all
                         the same; look, or ask again

Of several topics or partitions in one call some may be done when another is refused.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from storage_engine.client.admin import (
    client_quotas,
    groups,
    log_dirs,
    offset_resets,
    reassignment,
    record_deletion,
    schemas,
    transaction_states,
)
from storage_engine.client.admin import topics as admin
from storage_engine.client.admin.log_dirs import LogDir
from storage_engine.client.admin.topics import NewTopic, names_in
from storage_engine.client.closing import Closing
from storage_engine.client.cluster import Cluster
from storage_engine.client.groups.committed_offsets import committed_offsets
from storage_engine.client.metadata import TopicMetadata
from storage_engine.client.security.security_rows import Given
from storage_engine.client.settings import (
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    DEFAULT_API_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    by_key,
    cluster_of,
    parse_settings,
)
from storage_engine.client.turn import Turn, in_turn
from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.apis.metadata import MetadataBroker

SETTINGS = by_key(BOOTSTRAP_SERVERS, CLIENT_ID, REQUEST_TIMEOUT_MS, DEFAULT_API_TIMEOUT_MS)
"""The settings of `Admin` by their keys, with Kafka's defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The live brokers of a cluster, and its controller."""

    cluster_id: str | None
    controller_id: int | None
    """None while there is no controller."""
    brokers: tuple[MetadataBroker, ...]
    """The live brokers, by id."""


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _method(
    function: Callable[Concatenate[Cluster, Arguments], Result],
) -> Callable[Concatenate["Admin", Arguments], Result]:
    """Return a method of `Admin` for a function whose first argument is a `Cluster`."""

    @functools.wraps(function)
    def call(self: "Admin", /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with self._turn:
            return function(self._cluster, *arguments, **named)

    return call


class Admin(Closing):
    """Use it in a `with` block, or `close` it."""

    def __init__(self, config: Given) -> None:
        """`config`: see `SETTINGS`, Kafka's keys, values also as text; ConfigError for a wrong one.
        Opens nothing before the first call."""
        values = parse_settings(config, SETTINGS, client="admin")
        self._cluster = cluster_of(values)
        self._turn = Turn("admin", lambda _: self._cluster.close())

    # --- topics ---

    @in_turn
    def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        schema: str | TopicSchema | None = None,
        key: Sequence[str] = (),
    ) -> None:
        """Returns when every partition has a leader that serves it. `schema`: the columns of typed
        topics, given as Spark's DDL, an Avro record, a JSON Schema or Spark's JSON; `key`
        names the columns by which rows are partitioned and compacted, which become NOT NULL."""
        if schema is None and not key:
            admin.create_topics(self._cluster, topics, validate_only=validate_only)
            return
        if schema is None:
            raise ConfigError("a key is given without a schema: give the schema, too")
        schemas.create_typed_topics(
            self._cluster, topics, schemas.schema_from(schema, key), validate_only=validate_only
        )

    alter_schema = _method(schemas.alter_schema)
    describe_schemas = _method(schemas.describe_schemas)
    delete_topics = _method(admin.delete_topics)
    create_partitions = _method(admin.create_partitions)

    @in_turn
    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The topics by name; with `internal`, the internal topics too."""
        topics = self._cluster.metadata().topics
        return sorted(name for name, each in topics.items() if internal or not each.is_internal)

    @in_turn
    def describe_topics(self, topics: Iterable[str]) -> dict[str, TopicMetadata]:
        """Partitions with their leaders, replicas and in-sync replicas, by topic."""
        wanted = names_in(topics)
        self._cluster.refresh(wanted)
        return {name: self._cluster.topic(name) for name in wanted}

    # --- settings and quotas ---

    describe_topic_configs = _method(admin.describe_topic_configs)
    describe_broker_configs = _method(admin.describe_broker_configs)
    alter_topic_configs = _method(admin.alter_topic_configs)
    alter_broker_configs = _method(admin.alter_broker_configs)
    describe_client_quotas = _method(client_quotas.describe_client_quotas)
    alter_client_quotas = _method(client_quotas.alter_client_quotas)

    # --- groups ---

    list_groups = _method(groups.list_groups)
    describe_group = _method(groups.describe_group)
    delete_group = _method(groups.delete_group)
    describe_group_configs = _method(admin.describe_group_configs)
    alter_group_configs = _method(admin.alter_group_configs)
    group_offsets = _method(committed_offsets)
    alter_group_offsets = _method(offset_resets.set_offsets)
    reset_group_offsets = _method(offset_resets.reset_offsets)
    delete_group_offsets = _method(offset_resets.delete_offsets)

    # --- records ---

    @in_turn
    def list_offsets(
        self,
        at_ms: Mapping[TopicPartition, int],
        *,
        isolation: str = "read_uncommitted",
    ) -> dict[TopicPartition, int | None]:
        """For each partition: the first offset whose record is not older than that time (None when
        all are older), for EARLIEST the first offset of the log, for LATEST the next that will be
        readable under `isolation`."""
        wanted = {TopicPartition(*tp): at for tp, at in at_ms.items()}
        found = self._cluster.list_offsets(wanted, isolation=isolation)
        return {tp: offset if offset >= 0 else None for tp, offset in found.items()}

    delete_records = _method(record_deletion.delete_records)

    # --- the cluster ---

    @in_turn
    def describe_cluster(self) -> ClusterDescription:
        """The live brokers and the controller, asked for anew."""
        view = self._cluster.metadata([])
        known = view.controller_id in view.brokers
        return ClusterDescription(
            cluster_id=view.cluster_id,
            controller_id=view.controller_id if known else None,
            brokers=tuple(view.brokers[broker_id] for broker_id in sorted(view.brokers)),
        )

    @in_turn
    def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None
    ) -> dict[int, tuple[LogDir, ...]]:
        """The log dirs of brokers with the replicas in them, by broker; None asks all live
        brokers. The request is not retried."""
        if broker_ids is None:
            broker_ids = sorted(self._cluster.metadata([]).brokers)
        return {each: log_dirs.describe_log_dirs(self._cluster, each) for each in broker_ids}

    alter_replica_log_dirs = _method(log_dirs.alter_replica_log_dirs)
    alter_reassignments = _method(reassignment.alter_reassignments)
    list_reassignments = _method(reassignment.list_reassignments)
    elect_leaders = _method(reassignment.elect_leaders)

    # --- transactions ---

    list_transactions = _method(transaction_states.list_transactions)
    describe_transaction = _method(transaction_states.describe_transaction)
    describe_producers = _method(transaction_states.describe_producers)

    # --- the end ---

    def close(self) -> None:
        """Close all connections, after the call that is at work."""
        self._turn.end()
