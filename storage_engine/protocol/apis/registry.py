"""The table of all APIs with their versions, without importing them.

This table decides on versions; each API's module is named as the API, and imported on first use.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import NamedTuple

from storage_engine.core.features import GROUP_VERSION
from storage_engine.protocol.apis.spec import AnyApi, VersionRange

API_VERSIONS_KEY = 18


class FeatureNeed(NamedTuple):
    """The level of a feature from which on an API is offered to clients."""

    feature: str
    level: int


class ApiEntry(NamedTuple):
    """One row of the table."""

    name: str
    versions: VersionRange
    first_flexible_version: int | None
    need: FeatureNeed | None = None
    """None where it is offered at every level."""

    @property
    def module(self) -> str:
        """The name of the module with its codecs."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


def _entry(
    name: str, low: int, high: int, first_flexible: int | None, need: FeatureNeed | None = None
) -> ApiEntry:
    return ApiEntry(name, VersionRange(low, high), first_flexible, need)


_CONSUMER_GROUPS = FeatureNeed(GROUP_VERSION, 1)

_SERVED: dict[int, ApiEntry] = {
    0: _entry("Produce", 0, 12, 9),
    1: _entry("Fetch", 4, 18, 12),
    2: _entry("ListOffsets", 1, 11, 6),
    3: _entry("Metadata", 0, 12, 9),
    8: _entry("OffsetCommit", 2, 9, 8),
    9: _entry("OffsetFetch", 1, 9, 6),
    10: _entry("FindCoordinator", 0, 4, 3),
    11: _entry("JoinGroup", 0, 9, 6),
    12: _entry("Heartbeat", 0, 4, 4),
    13: _entry("LeaveGroup", 0, 5, 4),
    14: _entry("SyncGroup", 0, 5, 4),
    15: _entry("DescribeGroups", 0, 5, 5),
    16: _entry("ListGroups", 0, 5, 3),
    17: _entry("SaslHandshake", 0, 1, None),
    18: _entry("ApiVersions", 0, 4, 3),
    19: _entry("CreateTopics", 2, 7, 5),
    20: _entry("DeleteTopics", 1, 6, 4),
    21: _entry("DeleteRecords", 0, 2, 2),
    22: _entry("InitProducerId", 0, 4, 2),
    23: _entry("OffsetForLeaderEpoch", 2, 4, 4),
    24: _entry("AddPartitionsToTxn", 0, 5, 3),
    25: _entry("AddOffsetsToTxn", 0, 4, 3),
    26: _entry("EndTxn", 0, 5, 3),
    27: _entry("WriteTxnMarkers", 1, 2, 1),
    28: _entry("TxnOffsetCommit", 0, 5, 3),
    29: _entry("DescribeAcls", 1, 3, 2),
    30: _entry("CreateAcls", 1, 3, 2),
    31: _entry("DeleteAcls", 1, 3, 2),
    32: _entry("DescribeConfigs", 1, 4, 4),
    33: _entry("AlterConfigs", 0, 2, 2),
    34: _entry("AlterReplicaLogDirs", 1, 2, 2),
    35: _entry("DescribeLogDirs", 1, 4, 2),
    36: _entry("SaslAuthenticate", 0, 2, 2),
    37: _entry("CreatePartitions", 0, 3, 2),
    42: _entry("DeleteGroups", 0, 2, 2),
    43: _entry("ElectLeaders", 0, 2, 2),
    44: _entry("IncrementalAlterConfigs", 0, 1, 1),
    45: _entry("AlterPartitionReassignments", 0, 1, 0),
    46: _entry("ListPartitionReassignments", 0, 0, 0),
    47: _entry("OffsetDelete", 0, 0, None),
    48: _entry("DescribeClientQuotas", 0, 1, 1),
    49: _entry("AlterClientQuotas", 0, 1, 1),
    50: _entry("DescribeUserScramCredentials", 0, 0, 0),
    51: _entry("AlterUserScramCredentials", 0, 0, 0),
    57: _entry("UpdateFeatures", 0, 2, 0),
    60: _entry("DescribeCluster", 0, 1, 0),
    61: _entry("DescribeProducers", 0, 0, 0),
    65: _entry("DescribeTransactions", 0, 0, 0),
    66: _entry("ListTransactions", 0, 1, 0),
    68: _entry("ConsumerGroupHeartbeat", 0, 1, 0, _CONSUMER_GROUPS),
    69: _entry("ConsumerGroupDescribe", 0, 1, 0, _CONSUMER_GROUPS),
    74: _entry("ListConfigResources", 0, 1, 0),
    75: _entry("DescribeTopicPartitions", 0, 0, 0),
}

_INTERNAL: dict[int, ApiEntry] = {
    4: _entry("LeaderAndIsr", 0, 0, None),
    5: _entry("StopReplica", 0, 0, None),
    6: _entry("UpdateMetadata", 0, 0, None),
    7: _entry("ControlledShutdown", 0, 0, None),
}

_OWN: dict[int, ApiEntry] = {
    20_000: _entry("JoinBatch", 0, 0, 0),
    20_001: _entry("CommitBatch", 0, 0, 0),
    20_002: _entry("BatchHeartbeat", 0, 0, 0),
    20_003: _entry("AbortMembers", 0, 0, 0),
    20_004: _entry("DescribeSchemas", 0, 0, 0),
    20_005: _entry("DescribeSinks", 0, 0, 0),
}

APIS: Mapping[int, ApiEntry] = MappingProxyType({**_SERVED, **_INTERNAL, **_OWN})
"""All APIs by their keys."""

_BY_HAND = frozenset(range(8)) | {18, 68, 69} | frozenset(_OWN)
GENERATED = frozenset(APIS) - _BY_HAND
"""The APIs whose messages `.ci/messages.py` writes from Kafka's schemas. Others are in `apis`."""

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
        spec = _specs[api_key] = module_of(api_key).API
    return spec


def module_of(api_key: int) -> ModuleType:
    """Import the module with an API's messages and codecs."""
    package = "messages" if api_key in GENERATED else "apis"
    return importlib.import_module(f"storage_engine.protocol.{package}.{APIS[api_key].module}")


def is_offered(api_key: int, level: Callable[[str], int]) -> bool:
    """Whether an API is offered to clients at these levels of features."""
    need = APIS[api_key].need
    return need is None or level(need.feature) >= need.level


def name_of(api_key: int) -> str:
    """Return the name of an API for messages."""
    entry = APIS.get(api_key)
    return entry.name if entry is not None else f"api key {api_key}"
