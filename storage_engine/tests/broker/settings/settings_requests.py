"""What clients ask about settings, short answers, and what comes of it."""

import json
from typing import Any

from simulation.world.broker import SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
)
from storage_engine.zookeeper.admin_znodes import ConfigChangeZNode

TP = TopicPartition("t", 0)

SOON_MS = 50
"""Watch, listing, notification, settings: a few round trips to ZooKeeper."""

TOPIC = 2
BROKER = 4

SET, DELETE, APPEND, SUBTRACT = range(4)

Outcome = tuple[ErrorCode, str | None]

DONE: Outcome = (ErrorCode.NONE, None)


def send_alter(
    cluster: SimulatedCluster,
    broker: int,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> list[Any]:
    """An IncrementalAlterConfigs of one resource; its answer will be in the list."""
    resource = incremental_alter_configs.IncrementalAlterConfigsRequest.AlterConfigsResource
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    resource.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    return cluster.ask(broker, incremental_alter_configs.API, 1, request)


def alter(
    cluster: SimulatedCluster,
    broker: int,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> Outcome:
    answers = send_alter(cluster, broker, kind, name, *changes, validate_only=validate_only)
    return _outcome(cluster.answer(answers))


def replace_all(
    cluster: SimulatedCluster, broker: int, kind: int, name: str, **settings: str
) -> Outcome:
    """An AlterConfigs, with underscores for dots."""
    resource = alter_configs.AlterConfigsRequest.AlterConfigsResource
    request = alter_configs.AlterConfigsRequest(
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    resource.AlterableConfig(name=key.replace("_", "."), value=value)
                    for key, value in settings.items()
                ],
            )
        ],
        validate_only=False,
    )
    return _outcome(cluster.answer(cluster.ask(broker, alter_configs.API, 2, request)))


def _outcome(answer: Any) -> Outcome:
    (row,) = answer.responses
    return ErrorCode.of(row.error_code), row.error_message


def answer_to_describe(cluster: SimulatedCluster, broker: int, kind: int, name: str) -> Any:
    """With synonyms and documentation."""
    request = describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = cluster.answer(cluster.ask(broker, describe_configs.API, 4, request)).results
    return result


def describe(cluster: SimulatedCluster, broker: int, kind: int, name: str) -> dict[str, Any]:
    """Entries by name."""
    result = answer_to_describe(cluster, broker, kind, name)
    assert result.error_code == 0, result.error_message
    return {entry.name: entry for entry in result.configs}


def stored(cluster: SimulatedCluster, path: str = "topics/t") -> dict[str, str]:
    """The settings in ZooKeeper."""
    data = cluster.zookeeper.data(f"/config/{path}")
    return {} if data is None else json.loads(data)["config"]


def segment_bytes(broker: SimulatedBroker) -> int:
    """`segment.bytes` as the broker's log of TP has it."""
    return broker.logs.logs[TP].config.segment_bytes


def notifications(cluster: SimulatedCluster) -> list[str]:
    return cluster.zookeeper.children(ConfigChangeZNode.PARENT)
