"""A request for each API of those who look at the cluster and change it, in each version."""

from collections.abc import Callable
from typing import Any

from integration_tests.security.scan.planted import (
    Planted,
    built,
    credential,
    one_partition,
    rule,
)
from integration_tests.security.scan.scanned_request import WAIT_MS, same, scanned
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.tests.broker.guards.api_cases import (
    O,
    group,
    to_cluster,
    topic,
)


def _settings(key: int, kind: int, name: str, **rows: Any) -> Callable[[Planted], Any]:
    return same(key, resources=[{"resource_type": kind, "resource_name": name, **rows}])


def _deletes_by_id(planted: Planted) -> Any:
    return built(20, topics=[{"name": None, "topic_id": planted.topic_id}], timeout_ms=WAIT_MS)


_DESCRIBE_T = topic(O.DESCRIBE)
_ALTER, _DESCRIBE = to_cluster(O.ALTER), to_cluster(O.DESCRIBE)
_TOPIC_KIND, _BROKER_KIND, _GROUP_KIND = 2, 4, 32
_SESSION = "consumer.session.timeout.ms"
_NEWS = [{"name": "retention.ms", "value": "86400123"}]
_ROOM = [{"name": "made", "num_partitions": 1, "replication_factor": 1, "assignments": []}]
_ANY_RULE = {
    "resource_type_filter": 2,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}

REQUESTS = [
    scanned(3, lambda _: MetadataRequest(topics=["t"]), _DESCRIBE_T, note="one"),
    scanned(3, lambda _: MetadataRequest(topics=None), first=1, note="all", shows=True),
    scanned(
        3,
        lambda _: MetadataRequest(topics=["new"]),
        topic(O.DESCRIBE, "new"),
        topic(O.CREATE, "new"),
        note="creates",
        changes=True,
    ),
    scanned(18, same(18)),
    scanned(
        19,
        same(19, topics=_ROOM, timeout_ms=WAIT_MS),
        topic(O.CREATE, "made"),
        changes=True,
    ),
    scanned(
        37,
        same(37, topics=[{"name": "t", "count": 2, "assignments": None}], timeout_ms=WAIT_MS),
        topic(O.ALTER),
        changes=True,
    ),
    scanned(29, same(29, **_ANY_RULE), _DESCRIBE, shows=True),
    scanned(30, same(30, creations=[rule("User:eve", "other")]), _ALTER, changes=True),
    scanned(
        31,
        same(31, filters=[_ANY_RULE | {"resource_name_filter": "unruled"}]),
        _ALTER,
        changes=True,
    ),
    scanned(32, _settings(32, _TOPIC_KIND, "t"), topic(O.DESCRIBE_CONFIGS)),
    scanned(
        32,
        _settings(32, _BROKER_KIND, "1"),
        to_cluster(O.DESCRIBE_CONFIGS),
        note="broker",
    ),
    scanned(32, _settings(32, _GROUP_KIND, "g"), group(O.DESCRIBE_CONFIGS), note="group"),
    scanned(
        33,
        _settings(33, _GROUP_KIND, "g", configs=[{"name": _SESSION, "value": "50000"}]),
        group(O.ALTER_CONFIGS),
        note="group",
        changes=True,
    ),
    scanned(
        44,
        _settings(
            44,
            _GROUP_KIND,
            "g",
            configs=[{"name": _SESSION, "config_operation": 0, "value": "50001"}],
        ),
        group(O.ALTER_CONFIGS),
        note="group",
        changes=True,
    ),
    scanned(
        33,
        _settings(33, _TOPIC_KIND, "t", configs=_NEWS),
        topic(O.ALTER_CONFIGS),
        changes=True,
    ),
    scanned(
        33,
        _settings(33, _BROKER_KIND, "1", configs=[{"name": "log.retention.ms", "value": "86400"}]),
        to_cluster(O.ALTER_CONFIGS),
        note="broker",
        changes=True,
    ),
    scanned(
        34,
        same(34, dirs=[{"path": "/x", "topics": [{"name": "t", "partitions": [0]}]}]),
        _ALTER,
    ),
    scanned(35, same(35, topics=None), _DESCRIBE, first=3, shows=True),
    scanned(
        35,
        same(35, topics=None),
        _DESCRIBE,
        last=2,
        note="without-error-codes",
        shows=True,
        is_told=False,
    ),
    scanned(
        43,
        same(43, topic_partitions=[{"topic": "t", "partitions": [0]}], timeout_ms=WAIT_MS),
        _ALTER,
    ),
    scanned(
        44,
        _settings(
            44,
            _TOPIC_KIND,
            "t",
            configs=[{"name": "max.message.bytes", "config_operation": 0, "value": "100000"}],
        ),
        topic(O.ALTER_CONFIGS),
        changes=True,
    ),
    scanned(
        44,
        _settings(
            44,
            _BROKER_KIND,
            "1",
            configs=[{"name": "log.retention.ms", "config_operation": 0, "value": "86401"}],
        ),
        to_cluster(O.ALTER_CONFIGS),
        note="broker",
        changes=True,
    ),
    scanned(
        45,
        same(
            45,
            timeout_ms=WAIT_MS,
            topics=[{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}],
        ),
        _ALTER,
    ),
    scanned(46, same(46, timeout_ms=WAIT_MS, topics=None), _DESCRIBE),
    scanned(
        48,
        same(48, components=[], strict=False),
        to_cluster(O.DESCRIBE_CONFIGS),
        shows=True,
    ),
    scanned(
        49,
        same(
            49,
            entries=[
                {
                    "entity": [{"entity_type": "user", "entity_name": "u"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e8}],
                }
            ],
        ),
        to_cluster(O.ALTER_CONFIGS),
        changes=True,
    ),
    scanned(50, same(50, users=None), _DESCRIBE, shows=True),
    scanned(51, same(51, deletions=[], upsertions=[credential("eve")]), _ALTER, changes=True),
    scanned(
        57,
        same(
            57,
            feature_updates=[
                {"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}
            ],
        ),
        _ALTER,
    ),
    scanned(74, same(74, resource_types=[]), to_cluster(O.DESCRIBE_CONFIGS), shows=True),
    scanned(75, same(75, topics=[{"name": "t"}], cursor=None), _DESCRIBE_T, note="one"),
    scanned(75, same(75, topics=[], cursor=None), note="all", shows=True),
    scanned(60, same(60, include_cluster_authorized_operations=True)),
    scanned(
        20,
        same(20, topic_names=["gone"], timeout_ms=WAIT_MS),
        topic(O.DELETE, "gone"),
        last=5,
        changes=True,
    ),
    scanned(
        20,
        _deletes_by_id,
        topic(O.DELETE, "gone-by-id"),
        first=6,
        note="by-id",
        changes=True,
    ),
    scanned(
        21,
        same(21, topics=one_partition(partition_index=0, offset=1), timeout_ms=WAIT_MS),
        topic(O.DELETE),
        changes=True,
    ),
]

"""In the order in which they are sent: what destroys comes after what needs it."""
