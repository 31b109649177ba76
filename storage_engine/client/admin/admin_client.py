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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage_engine.client.admin import (
    active_producers,
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
from storage_engine.client.admin.active_producers import ActiveProducer
from storage_engine.client.admin.client_quotas import ClientQuota
from storage_engine.client.admin.groups import GroupDescription, ListedGroup
from storage_engine.client.admin.log_dirs import LogDir
from storage_engine.client.admin.offset_resets import OffsetReset
from storage_engine.client.admin.reassignment import Ongoing
from storage_engine.client.admin.topics import ConfigEntry, NewTopic
from storage_engine.client.admin.transaction_states import ListedTransaction, TransactionDescription
from storage_engine.client.closing import Closing
from storage_engine.client.groups.committed_offsets import committed_offsets
from storage_engine.client.metadata import TopicMetadata
from storage_engine.client.settings import (
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    DEFAULT_API_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    by_key,
    cluster_of,
    parse_settings,
)
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.client.turn import Turn, in_turn
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.quotas.quota_entity import QuotaEntity
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


class Admin(Closing):
    """Use it in a `with` block, or `close` it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
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
        """Returns when every partition has a leader that serves it. `schema`: they are typed, with
        these columns, given as Spark's DDL, an Avro record, a JSON Schema or Spark's JSON; `key`
        names the columns by which rows are partitioned and compacted, which become NOT NULL."""
        if schema is None and not key:
            admin.create_topics(self._cluster, topics, validate_only=validate_only)
            return
        if schema is None:
            raise ConfigError("a key is given without a schema: give the schema, too")
        schemas.create_typed_topics(
            self._cluster, topics, schemas.schema_from(schema, key), validate_only=validate_only
        )

    @in_turn
    def alter_schema(self, topic: str, schema: str, *, based_on: int | None = None) -> TopicSchema:
        """Give a typed topic these columns, by name: new ones are added, types may be wider, those
        that are left out are hidden; rows that are there stay readable. `based_on`: the version
        from which you made them; where there is a newer one, it is an error. Returns when the
        leaders of the topic work by it; ConfigError says why a change is refused."""
        return schemas.alter_schema(self._cluster, topic, schema, based_on=based_on)

    @in_turn
    def describe_schemas(self, topics: Iterable[str]) -> dict[str, KnownSchema | None]:
        """The schema of each topic; None for one that is not typed."""
        return schemas.describe_schemas(self._cluster, _names(topics))

    @in_turn
    def delete_topics(self, topics: Iterable[str]) -> None:
        """Deletes topics and their records; returns when no broker lists them any more."""
        admin.delete_topics(self._cluster, _names(topics))

    @in_turn
    def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Raise the numbers of partitions of topics to these; returns when each has a leader. Keys
        go to other partitions then."""
        admin.create_partitions(self._cluster, counts)

    @in_turn
    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The topics by name; with `internal`, the internal topics too."""
        topics = self._cluster.metadata().topics
        return sorted(name for name, each in topics.items() if internal or not each.is_internal)

    @in_turn
    def describe_topics(self, topics: Iterable[str]) -> dict[str, TopicMetadata]:
        """Partitions with their leaders, replicas and in-sync replicas, by topic."""
        wanted = _names(topics)
        self._cluster.refresh(wanted)
        return {name: self._cluster.topic(name) for name in wanted}

    # --- settings ---

    @in_turn
    def describe_topic_configs(self, topic: str) -> dict[str, ConfigEntry]:
        """The settings in force for a topic, by name."""
        return admin.describe_topic_configs(self._cluster, topic)

    @in_turn
    def describe_broker_configs(self, broker_id: int) -> dict[str, ConfigEntry]:
        """The settings in force for a broker, by name, from the broker itself."""
        return admin.describe_broker_configs(self._cluster, broker_id)

    @in_turn
    def alter_topic_configs(
        self, topic: str, values: Mapping[str, str], *, remove: Iterable[str] = ()
    ) -> None:
        """Set some settings of a topic, and those of `remove` back to the brokers'; the others stay
        as they are. All or none."""
        admin.alter_topic_configs(self._cluster, topic, values, remove=_names(remove))

    @in_turn
    def alter_broker_configs(
        self, broker_id: int | str, values: Mapping[str, str], *, remove: Iterable[str] = ()
    ) -> None:
        """The same for a broker at run time, or for ALL_BROKERS. All or none."""
        admin.alter_broker_configs(self._cluster, str(broker_id), values, remove=_names(remove))

    # --- quotas ---

    @in_turn
    def describe_client_quotas(self) -> list[ClientQuota]:
        """All quotas of users, client ids and addresses."""
        return client_quotas.describe_client_quotas(self._cluster)

    @in_turn
    def alter_client_quotas(
        self, entity: QuotaEntity, values: Mapping[str, float], *, remove: Iterable[str] = ()
    ) -> None:
        """Set some quotas of a user, a client id, both or an address, and remove those of
        `remove`."""
        client_quotas.alter_client_quotas(self._cluster, entity, values, remove=_names(remove))

    # --- groups ---

    @in_turn
    def list_groups(self) -> list[ListedGroup]:
        """The groups by name."""
        return groups.list_groups(self._cluster)

    @in_turn
    def describe_group(self, group: str) -> GroupDescription:
        """The members of a group, and the committed offset and the lag of each partition."""
        return groups.describe_group(self._cluster, group)

    @in_turn
    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets."""
        groups.delete_group(self._cluster, group)

    @in_turn
    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The committed offset of each partition: the next one to read. Empty when the group does
        not exist."""
        return committed_offsets(self._cluster, group)

    @in_turn
    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Store where a group without members goes on; it is made where there is none."""
        offset_resets.set_offsets(self._cluster, group, _partitions(offsets))

    @in_turn
    def reset_group_offsets(
        self,
        group: str,
        *,
        topics: Iterable[str] = (),
        at_ms: int | None = None,
        offset: int | None = None,
        shift_by: int | None = None,
        dry_run: bool = False,
    ) -> list[OffsetReset]:
        """Let a group without members go on elsewhere in all partitions of `topics` (none: in those
        it has offsets of): `at_ms`, the first record from that time on, EARLIEST or LATEST; at
        `offset`; or `shift_by` so many on, negative for back. Kept within what there is. What was
        done, by partition, or with `dry_run` would be."""
        return offset_resets.reset_offsets(
            self._cluster,
            group,
            topics=_names(topics),
            at_ms=at_ms,
            offset=offset,
            shift_by=shift_by,
            dry_run=dry_run,
        )

    @in_turn
    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has stored of these; no member may read their topics."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        offset_resets.delete_offsets(self._cluster, group, wanted)

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
        found = self._cluster.list_offsets(_partitions(at_ms), isolation=isolation)
        return {tp: offset if offset >= 0 else None for tp, offset in found.items()}

    @in_turn
    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete all records below these offsets (-1: all that are committed); where each partition
        begins now."""
        return record_deletion.delete_records(self._cluster, _partitions(before))

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

    @in_turn
    def alter_replica_log_dirs(
        self, broker_id: int, targets: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, ErrorCode]:
        """Move replicas of one broker to other log dirs, given as its `log.dirs` name
        them. Those that did not begin, with the reason: REPLICA_NOT_AVAILABLE where there is no
        such replica yet, which will be made in that log dir. `describe_log_dirs` shows how far the
        others are."""
        wanted = {TopicPartition(*tp): path for tp, path in targets.items()}
        return log_dirs.alter_replica_log_dirs(self._cluster, broker_id, wanted)

    @in_turn
    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError]:
        """Move partitions to other brokers, the preferred leader first; None takes that back. The
        partitions that were refused, with the reason; the others are on their way."""
        wanted = {TopicPartition(*tp): replicas for tp, replicas in targets.items()}
        return reassignment.alter_reassignments(self._cluster, wanted)

    @in_turn
    def list_reassignments(self) -> dict[TopicPartition, Ongoing]:
        """The reassignments in progress."""
        return reassignment.list_reassignments(self._cluster)

    @in_turn
    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Have the preferred replicas of these partitions (None: of all) lead; with `unclean`, any
        live replica where no in-sync one is left: what it does not have is lost. How each ended; of
        all, only those that needed one."""
        wanted = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
        return reassignment.elect_leaders(self._cluster, wanted, unclean=unclean)

    # --- transactions ---

    @in_turn
    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_for_ms: int | None = None,
    ) -> list[ListedTransaction]:
        """Transactional ids, by name; only those in one of `states`, of one of `producer_ids`, with
        a transaction that is open for so long, where that is given."""
        return transaction_states.list_transactions(
            self._cluster, states=_names(states), producer_ids=producer_ids, open_for_ms=open_for_ms
        )

    @in_turn
    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """The open partitions of a transaction, and when it began."""
        return transaction_states.describe_transaction(self._cluster, transactional_id)

    @in_turn
    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The idempotent producers that the partitions' leaders remember, by producer id: where a
        transaction hangs, its first offset is among them."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        return active_producers.describe_producers(self._cluster, wanted)

    # --- the end ---

    def close(self) -> None:
        """Close all connections, after the call that is at work."""
        self._turn.end()


def _names(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise ConfigError(f"a list of names is expected; give ['{names}']")
    return [*names]


def _partitions(values: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(*tp): value for tp, value in values.items()}
