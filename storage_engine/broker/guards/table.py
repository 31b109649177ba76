"""The table of the rights that each API requires. An API without a row is served to nobody.

    requests of clients    rights to the topics, groups and transactional ids that they name
    requests of brokers    ClusterAction

Source: Kafka's documentation of authorization (operations and resources on protocols); KIP-679.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from storage_engine.broker.guards import (
    cluster,
    consumer_groups,
    groups,
    records,
    topics,
    transactions,
)
from storage_engine.broker.guards.client import AnyGuard, Asked, Guard, GuardParts, RequestClient
from storage_engine.broker.handlers.api_call import AnyHandler, ApiCall, Handler
from storage_engine.broker.requests.long_work import Steps
from storage_engine.protocol.apis.registry import name_of
from storage_engine.protocol.apis.spec import AnyApi, Req, Resp


class GuardRow(NamedTuple):
    """The rights that an API requires, in words, and the guard that checks them."""

    asks: str
    guard: AnyGuard | None
    """None where every client may send the request."""


_NOTHING = GuardRow("nothing", None)

_RECORDS: dict[int, GuardRow] = {
    0: GuardRow("Write on each topic, and on the transactional id", records.produce),
    1: GuardRow("Read on each topic; ClusterAction of replicas", records.fetch),
    2: GuardRow("Describe on each topic; ClusterAction of replicas", records.list_offsets),
    21: GuardRow("Delete on each topic", records.delete_records),
    23: GuardRow(
        "Describe on each topic; ClusterAction of replicas", records.offset_for_leader_epoch
    ),
}

_TOPICS: dict[int, GuardRow] = {
    3: GuardRow(
        "Describe on each topic, and Create on the cluster or the topic for a new one",
        topics.metadata,
    ),
    19: GuardRow(
        "Create on the cluster or on each topic; its settings are told with DescribeConfigs",
        topics.create_topics,
    ),
    20: GuardRow("Delete on each topic", topics.delete_topics),
    37: GuardRow("Alter on each topic", topics.create_partitions),
    75: GuardRow("Describe on each topic", topics.describe_topic_partitions),
    60: GuardRow("nothing; shows what may be done to the cluster", topics.describe_cluster),
    20_004: GuardRow("Describe on each topic", topics.describe_schemas),
}

_GROUPS: dict[int, GuardRow] = {
    8: GuardRow("Read on the group and on each topic", groups.offset_commit),
    9: GuardRow("Describe on the group and on each topic", groups.offset_fetch),
    10: GuardRow("Describe on the group or transactional id", groups.find_coordinator),
    11: GuardRow("Read on the group", groups.join_group),
    12: GuardRow("Read on the group", groups.heartbeat),
    13: GuardRow("Read on the group", groups.leave_group),
    14: GuardRow("Read on the group", groups.sync_group),
    15: GuardRow("Describe on each group", groups.describe_groups),
    16: GuardRow("Describe on the cluster or on each group", groups.list_groups),
    42: GuardRow("Delete on each group", groups.delete_groups),
    68: GuardRow(
        "Read on the group, Describe on each topic that is named",
        consumer_groups.consumer_group_heartbeat,
    ),
    69: GuardRow(
        "Describe on each group and on all of its topics", consumer_groups.consumer_group_describe
    ),
    47: GuardRow("Delete on the group, Read on each topic", groups.offset_delete),
}

_TRANSACTIONS: dict[int, GuardRow] = {
    22: GuardRow(
        "Write on the transactional id; without one, Write on any topic, or IdempotentWrite on the "
        "cluster",
        transactions.init_producer_id,
    ),
    24: GuardRow(
        "Write on the transactional id and on each topic; ClusterAction of brokers (4 and above)",
        transactions.add_partitions_to_txn,
    ),
    25: GuardRow(
        "Write on the transactional id, Read on the group", transactions.add_offsets_to_txn
    ),
    26: GuardRow("Write on the transactional id", transactions.end_txn),
    27: GuardRow("ClusterAction", transactions.write_txn_markers),
    28: GuardRow(
        "Write on the transactional id, Read on the group and on each topic",
        transactions.txn_offset_commit,
    ),
    61: GuardRow("Read on each topic", transactions.describe_producers),
    65: GuardRow(
        "Describe on each transactional id, and on the topics that are shown",
        transactions.describe_transactions,
    ),
    66: GuardRow("Describe on each transactional id", transactions.list_transactions),
    20_000: GuardRow("Write on the sink, as a transactional id", transactions.join_batch),
    20_001: GuardRow("Write on the sink, as a transactional id", transactions.commit_batch),
    20_002: GuardRow("Write on the sink, as a transactional id", transactions.batch_heartbeat),
    20_003: GuardRow("Write on the sink, as a transactional id", transactions.abort_members),
    20_005: GuardRow(
        "Describe on each sink, as a transactional id, and on the topics that are shown",
        transactions.describe_sinks,
    ),
}

_CLUSTER: dict[int, GuardRow] = {
    4: GuardRow("ClusterAction", cluster.leader_and_isr),
    5: GuardRow("ClusterAction", cluster.stop_replica),
    6: GuardRow("ClusterAction", cluster.update_metadata),
    7: GuardRow("ClusterAction", cluster.controlled_shutdown),
    29: GuardRow("Describe on the cluster", cluster.describe_acls),
    30: GuardRow("Alter on the cluster", cluster.create_acls),
    31: GuardRow("Alter on the cluster", cluster.delete_acls),
    32: GuardRow(
        "DescribeConfigs on each topic, each group or the cluster", cluster.describe_configs
    ),
    33: GuardRow("AlterConfigs on each topic, each group or the cluster", cluster.alter_configs),
    34: GuardRow("Alter on the cluster", cluster.alter_replica_log_dirs),
    35: GuardRow("Describe on the cluster", cluster.describe_log_dirs),
    43: GuardRow("Alter on the cluster", cluster.elect_leaders),
    44: GuardRow(
        "AlterConfigs on each topic, each group or the cluster", cluster.incremental_alter_configs
    ),
    45: GuardRow("Alter on the cluster", cluster.alter_partition_reassignments),
    46: GuardRow("Describe on the cluster", cluster.list_partition_reassignments),
    48: GuardRow("DescribeConfigs on the cluster", cluster.describe_quotas),
    49: GuardRow("AlterConfigs on the cluster", cluster.alter_quotas),
    50: GuardRow("Describe on the cluster", cluster.describe_scram),
    51: GuardRow("Alter on the cluster", cluster.alter_scram),
    57: GuardRow("Alter on the cluster", cluster.update_features),
    74: GuardRow("DescribeConfigs on the cluster", cluster.list_config_resources),
}

_CONNECTION: dict[int, GuardRow] = {17: _NOTHING, 18: _NOTHING, 36: _NOTHING}
"""SaslHandshake, ApiVersions and SaslAuthenticate come before the client is authenticated."""

GUARD_ROWS: Mapping[int, GuardRow] = MappingProxyType(
    {**_RECORDS, **_TOPICS, **_GROUPS, **_TRANSACTIONS, **_CLUSTER, **_CONNECTION}
)


def guarded(parts: GuardParts, spec: AnyApi, handler: AnyHandler) -> AnyHandler:
    """Return the handler behind the guard of its API."""
    row = GUARD_ROWS.get(spec.key)
    assert row is not None, f"the table of guards has no row for {name_of(spec.key)}"
    return handler if row.guard is None else partial(_guard, parts, row.guard, handler)


def _guard(
    parts: GuardParts,
    guard: Guard[Req, Resp],
    handler: Handler[Resp, Req],
    call: ApiCall[Resp],
    request: Req,
) -> Steps | None:
    return guard(Asked(RequestClient(parts, call), call, request, handler))
