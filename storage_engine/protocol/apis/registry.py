"""The table of all APIs with their versions, without importing them.

This table decides on versions; each API's module repeats its own and is imported on first use.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from storage_engine.protocol.apis.spec import AnyApi, VersionRange

API_VERSIONS_KEY = 18


class ApiEntry(NamedTuple):
    """One row of the table."""

    name: str
    module: str
    versions: VersionRange
    first_flexible_version: int | None


def _entry(name: str, module: str, low: int, high: int, first_flexible: int | None) -> ApiEntry:
    return ApiEntry(name, module, VersionRange(low, high), first_flexible)


_SERVED: dict[int, ApiEntry] = {
    0: _entry("Produce", "produce", 0, 12, 9),
    1: _entry("Fetch", "fetch", 4, 18, 12),
    2: _entry("ListOffsets", "list_offsets", 1, 11, 6),
    3: _entry("Metadata", "metadata", 0, 12, 9),
    8: _entry("OffsetCommit", "offset_commit", 2, 8, 8),
    9: _entry("OffsetFetch", "offset_fetch", 1, 8, 6),
    10: _entry("FindCoordinator", "find_coordinator", 0, 4, 3),
    11: _entry("JoinGroup", "join_group", 0, 9, 6),
    12: _entry("Heartbeat", "heartbeat", 0, 4, 4),
    13: _entry("LeaveGroup", "leave_group", 0, 5, 4),
    14: _entry("SyncGroup", "sync_group", 0, 5, 4),
    15: _entry("DescribeGroups", "describe_groups", 0, 5, 5),
    16: _entry("ListGroups", "list_groups", 0, 5, 3),
    17: _entry("SaslHandshake", "sasl_handshake", 0, 1, None),
    18: _entry("ApiVersions", "api_versions", 0, 3, 3),
    19: _entry("CreateTopics", "create_topics", 2, 7, 5),
    20: _entry("DeleteTopics", "delete_topics", 1, 6, 4),
    21: _entry("DeleteRecords", "delete_records", 0, 2, 2),
    22: _entry("InitProducerId", "init_producer_id", 0, 4, 2),
    23: _entry("OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4, 4),
    24: _entry("AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 3),
    25: _entry("AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 3),
    26: _entry("EndTxn", "end_txn", 0, 5, 3),
    27: _entry("WriteTxnMarkers", "write_txn_markers", 1, 2, 1),
    28: _entry("TxnOffsetCommit", "txn_offset_commit", 0, 5, 3),
    29: _entry("DescribeAcls", "describe_acls", 1, 3, 2),
    30: _entry("CreateAcls", "create_acls", 1, 3, 2),
    31: _entry("DeleteAcls", "delete_acls", 1, 3, 2),
    32: _entry("DescribeConfigs", "describe_configs", 1, 4, 4),
    33: _entry("AlterConfigs", "alter_configs", 0, 2, 2),
    34: _entry("AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2, 2),
    35: _entry("DescribeLogDirs", "describe_log_dirs", 1, 4, 2),
    36: _entry("SaslAuthenticate", "sasl_authenticate", 0, 2, 2),
    37: _entry("CreatePartitions", "create_partitions", 0, 3, 2),
    42: _entry("DeleteGroups", "delete_groups", 0, 2, 2),
    43: _entry("ElectLeaders", "elect_leaders", 0, 2, 2),
    44: _entry("IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, 1),
    45: _entry("AlterPartitionReassignments", "alter_partition_reassignments", 0, 1, 0),
    46: _entry("ListPartitionReassignments", "list_partition_reassignments", 0, 0, 0),
    47: _entry("OffsetDelete", "offset_delete", 0, 0, None),
    48: _entry("DescribeClientQuotas", "describe_client_quotas", 0, 1, 1),
    49: _entry("AlterClientQuotas", "alter_client_quotas", 0, 1, 1),
    50: _entry("DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0, 0),
    51: _entry("AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0, 0),
    57: _entry("UpdateFeatures", "update_features", 0, 2, 0),
    60: _entry("DescribeCluster", "describe_cluster", 0, 1, 0),
    61: _entry("DescribeProducers", "describe_producers", 0, 0, 0),
    65: _entry("DescribeTransactions", "describe_transactions", 0, 0, 0),
    66: _entry("ListTransactions", "list_transactions", 0, 1, 0),
    74: _entry("ListConfigResources", "list_config_resources", 0, 1, 0),
    75: _entry("DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0),
}

_INTERNAL: dict[int, ApiEntry] = {
    4: _entry("LeaderAndIsr", "leader_and_isr", 0, 1, None),
    5: _entry("StopReplica", "stop_replica", 0, 0, None),
    6: _entry("UpdateMetadata", "update_metadata", 0, 2, None),
    7: _entry("ControlledShutdown", "controlled_shutdown", 0, 0, None),
}

_OWN: dict[int, ApiEntry] = {
    20_000: _entry("JoinBatch", "join_batch", 0, 1, 0),
    20_001: _entry("CommitBatch", "commit_batch", 0, 1, 0),
    20_002: _entry("BatchHeartbeat", "batch_heartbeat", 0, 0, 0),
    20_003: _entry("AbortMembers", "abort_members", 0, 0, 0),
    20_004: _entry("DescribeSchemas", "describe_schemas", 0, 0, 0),
    20_005: _entry("DescribeSinks", "describe_sinks", 0, 0, 0),
}

APIS: Mapping[int, ApiEntry] = MappingProxyType({**_SERVED, **_INTERNAL, **_OWN})
"""All APIs by their keys."""

SERVED_RANGES: Mapping[int, VersionRange] = MappingProxyType(
    {key: entry.versions for key, entry in _SERVED.items()}
)
"""The APIs for clients: the broker advertises those for which it has a handler."""

INTERNAL_RANGES: Mapping[int, VersionRange] = MappingProxyType(
    {key: entry.versions for key, entry in _INTERNAL.items()}
)
"""The APIs between brokers; not advertised."""

OWN_RANGES: Mapping[int, VersionRange] = MappingProxyType(
    {key: entry.versions for key, entry in _OWN.items()}
)
"""Headrace's own, for the exactly-once sink and typed topics; their keys are far above those of
Kafka."""

_specs: dict[int, AnyApi] = {}


def spec_for(api_key: int) -> AnyApi:
    """Import an API's codecs on first use; KeyError for a key that is not in the table."""
    spec = _specs.get(api_key)
    if spec is None:
        module = importlib.import_module(f"{__package__}.{APIS[api_key].module}")
        spec = _specs[api_key] = module.API
    return spec


def name_of(api_key: int) -> str:
    """Return the name of an API for messages."""
    entry = APIS.get(api_key)
    return entry.name if entry is not None else f"api key {api_key}"


def api_of(key: int) -> tuple[AnyApi, Any]:
    """Import the codecs of an API and its request class: most clients need few of them."""
    entry = APIS[key]
    module = importlib.import_module(f"storage_engine.protocol.apis.{entry.module}")
    return spec_for(key), getattr(module, f"{entry.name}Request")
