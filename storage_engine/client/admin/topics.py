"""Topics and settings: create, delete, grow, describe, alter.

Requests go to the controller, and to the next one when it has changed. After a lost answer the call
succeeds when the change turns out to be made. Source: R-CTL6, R-TOOL1; KIP-4, KIP-339.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from storage_engine.client.admin.requests import Told, controller_of, wait_until
from storage_engine.client.asking import error_from
from storage_engine.client.cluster import LATEST, Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import ConfigError, DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition, topic_name_problem
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages.create_partitions import API as CREATE_PARTITIONS
from storage_engine.protocol.messages.create_partitions import CreatePartitionsRequest
from storage_engine.protocol.messages.create_topics import API as CREATE_TOPICS
from storage_engine.protocol.messages.create_topics import CreateTopicsRequest
from storage_engine.protocol.messages.delete_topics import API as DELETE_TOPICS
from storage_engine.protocol.messages.delete_topics import DeleteTopicsRequest
from storage_engine.protocol.messages.describe_configs import API as DESCRIBE_CONFIGS
from storage_engine.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from storage_engine.protocol.messages.incremental_alter_configs import (
    API as INCREMENTAL_ALTER_CONFIGS,
)
from storage_engine.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)

BROKER_DEFAULT = -1
"""Given as a number of partitions or replicas, it means the broker's default."""

ALL_BROKERS = ""
"""Given in place of a broker id, it means the settings that apply to every broker."""


_TOPIC_RESOURCE = 2
_BROKER_RESOURCE = 4
_GROUP_RESOURCE = 32
_RESOURCES = {_TOPIC_RESOURCE: "topic", _BROKER_RESOURCE: "broker", _GROUP_RESOURCE: "group"}
_SET = 0
_DELETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to be made; an `assignment` (partition -> brokers) stands for both numbers."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """The effective value of a setting of a topic or broker."""

    name: str
    value: str | None
    """None when it is not set, or the broker does not disclose it."""
    source: ConfigSource
    read_only: bool
    sensitive: bool = False
    """A secret, which no broker discloses."""


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    *,
    assignment: Mapping[int, Sequence[int]] | None = None,
) -> None:
    """Create one topic; returns when every partition has a leader that serves it."""
    new = NewTopic(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        configs=configs or {},
        assignment=assignment,
    )
    create_topics(cluster, [new])


def create_topics(
    cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool = False
) -> None:
    """Create topics; returns when every partition that the user may see has a leader that serves
    it. KafkaError for the first that failed."""
    wanted = {topic.name: topic for topic in topics}
    for name in wanted:
        if (problem := topic_name_problem(name)) is not None:
            raise KafkaError(problem, ErrorCode.INVALID_TOPIC_EXCEPTION)
    _ask_controller(
        cluster,
        CREATE_TOPICS,
        wanted,
        lambda left: CreateTopicsRequest(
            topics=[_creatable(wanted[name]) for name in left],
            timeout_ms=cluster.request_timeout_ms,
            validate_only=validate_only,
        ),
        lambda answer: [(each.name, each) for each in answer.topics],
        done_already=ErrorCode.TOPIC_ALREADY_EXISTS,
    )
    if not validate_only:
        wait_until(
            cluster,
            lambda: _have_leaders(cluster, wanted),
            f"created, but no leader for every partition of {', '.join(wanted)}",
        )


def _creatable(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    row = CreateTopicsRequest.CreatableTopic
    is_assigned = topic.assignment is not None
    return row(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if is_assigned else topic.partitions,
        replication_factor=BROKER_DEFAULT if is_assigned else topic.replication_factor,
        assignments=[
            row.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (topic.assignment or {}).items()
        ],
        configs=[
            row.CreatableTopicConfig(name=key, value=str(value))
            for key, value in topic.configs.items()
        ],
    )


def _have_leaders(cluster: Cluster, names: Iterable[str]) -> bool:
    view = cluster.metadata(names)
    # Who may create a topic may perhaps not see it: there is nothing to wait for then.
    if set(view.errors.values()) - {ErrorCode.TOPIC_AUTHORIZATION_FAILED}:
        return False
    partitions = {
        TopicPartition(name, number): each
        for name, topic in view.topics.items()
        for number, each in topic.partitions.items()
    }
    if any(each.leader < 0 for each in partitions.values()):
        return False
    # An elected leader may not have its order yet; once it has, it answers with offsets.
    cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    return True


def delete_topics(cluster: Cluster, topics: Iterable[str]) -> None:
    """Deletes topics and their records; returns when no broker that is asked lists them any
    more."""
    wanted = list(dict.fromkeys(names_in(topics)))
    _ask_controller(
        cluster,
        DELETE_TOPICS,
        wanted,
        # Version 6 has `topics`, those before have `topic_names`; the codec takes what its version
        # knows.
        lambda left: DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in left],
            topic_names=left,
            timeout_ms=cluster.request_timeout_ms,
        ),
        lambda answer: [(each.name or "", each) for each in answer.responses],
        done_already=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        final=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    wait_until(
        cluster,
        lambda: not cluster.metadata(wanted).topics,
        f"{', '.join(wanted)} can't be deleted before all its brokers are up; not gone",
    )


def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> None:
    """Raise the numbers of partitions of topics to these; returns when each has a leader. Keys go
    to other partitions then."""
    row = CreatePartitionsRequest.CreatePartitionsTopic
    _ask_controller(
        cluster,
        CREATE_PARTITIONS,
        counts,
        lambda left: CreatePartitionsRequest(
            topics=[row(name=name, count=counts[name], assignments=None) for name in left],
            timeout_ms=cluster.request_timeout_ms,
            validate_only=False,
        ),
        lambda answer: [(each.name, each) for each in answer.results],
        final=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    cluster.refresh(counts)
    cluster.list_offsets(
        {
            TopicPartition(name, number): LATEST
            for name, count in counts.items()
            for number in range(count)
        }
    )


def describe_topic_configs(cluster: Cluster, topic: str) -> dict[str, ConfigEntry]:
    """The settings in force for a topic, by name."""
    message = _describe_request(_TOPIC_RESOURCE, topic)
    retry = Retry(f"settings of topic '{topic}'", Deadline.after(cluster.deadline_ms))
    while True:
        result = cluster.ask_any(DESCRIBE_CONFIGS, message).results[0]
        error = _error("settings of topic", topic, result)
        if error is None:
            return _entries(result)
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            cluster.topic(topic)  # raises where the topic does not come to be
        retry.pause(error)


def describe_broker_configs(cluster: Cluster, broker_id: int) -> dict[str, ConfigEntry]:
    """The settings in force for a broker, by name, from the broker itself."""
    message = _describe_request(_BROKER_RESOURCE, str(broker_id))
    result = cluster.request(broker_id, DESCRIBE_CONFIGS, message).results[0]
    if (error := _error("settings of broker", str(broker_id), result)) is not None:
        raise error
    return _entries(result)


def describe_group_configs(cluster: Cluster, group: str) -> dict[str, ConfigEntry]:
    """The settings in force for a consumer group, whether it exists or not, by name."""
    message = _describe_request(_GROUP_RESOURCE, group)
    result = cluster.ask_any(
        DESCRIBE_CONFIGS,
        message,
        error_of=lambda answer: _error("settings of group", group, answer.results[0]),
    ).results[0]
    return _entries(result)


def _describe_request(resource_type: int, name: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource])


def _entries(result: DescribeConfigsResponse.DescribeConfigsResult) -> dict[str, ConfigEntry]:
    return {
        each.name: ConfigEntry(
            name=each.name,
            value=each.value,
            source=ConfigSource(each.config_source),
            read_only=each.read_only,
            sensitive=each.is_sensitive,
        )
        for each in result.configs
    }


def alter_topic_configs(
    cluster: Cluster, topic: str, values: Mapping[str, str], *, remove: Iterable[str] = ()
) -> None:
    """Set some settings of a topic, and those of `remove` back to the brokers'; the others stay as
    they are. All or none."""
    _alter_configs(cluster, _TOPIC_RESOURCE, topic, values, remove)


def alter_broker_configs(
    cluster: Cluster, broker_id: int | str, values: Mapping[str, str], *, remove: Iterable[str] = ()
) -> None:
    """Like `alter_topic_configs`, for a broker at run time or ALL_BROKERS. All or none."""
    _alter_configs(cluster, _BROKER_RESOURCE, str(broker_id), values, remove)


def alter_group_configs(
    cluster: Cluster, group: str, values: Mapping[str, str], *, remove: Iterable[str] = ()
) -> None:
    """Like `alter_topic_configs`, for a consumer group, whether it exists or not: its members hear
    of new times with their next heartbeats."""
    _alter_configs(cluster, _GROUP_RESOURCE, group, values, remove)


def _alter_configs(
    cluster: Cluster,
    resource_type: int,
    name: str,
    values: Mapping[str, str],
    remove: Iterable[str],
) -> None:
    row = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [
        row.AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in values.items()
    ]
    changes += [
        row.AlterableConfig(name=key, config_operation=_DELETE, value=None)
        for key in names_in(remove)
    ]
    if not changes:
        raise ConfigError(
            "no setting is given; give settings to set, or names of settings to remove"
        )
    resource = row(resource_type=resource_type, resource_name=name, configs=changes)
    _ask_controller(
        cluster,
        INCREMENTAL_ALTER_CONFIGS,
        [name],
        lambda _: IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
        lambda answer: [(each.resource_name, each) for each in answer.responses],
        final=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        what=_RESOURCES[resource_type],
    )


def names_in(names: Iterable[str]) -> list[str]:
    """Return the names; ConfigError for a text in place of a list."""
    if isinstance(names, str):
        raise ConfigError(f"a list of names is expected; give ['{names}']")
    return [*names]


def _error(what: str, name: str, row: Told) -> KafkaError | None:
    error = error_from(row.error_code, row.error_message)
    if error is None or f"'{name}'" in str(error):
        return error
    return KafkaError(f"{what} '{name}': {error}", error.code)


def _ask_controller(
    cluster: Cluster,
    spec: ApiSpec[Req, Resp],
    names: Iterable[str],
    message: Callable[[list[str]], Req],
    rows: Callable[[Resp], list[tuple[str, Told]]],
    *,
    done_already: ErrorCode | None = None,
    final: ErrorCode | None = None,
    what: str = "topic",
) -> None:
    """Ask until every name is done, or one has a final error, or the deadline is over.

    `done_already` is no error once an answer was lost; `final` is one that is otherwise retriable.
    """
    retry = Retry(spec.name, Deadline.after(cluster.deadline_ms))
    left = list(dict.fromkeys(names))
    answer_lost = False
    while left:
        try:
            answered = rows(cluster.request(controller_of(cluster), spec, message(left)))
        except (KafkaError, DeadlineExceededError) as error:
            answer_lost = True
            retry.pause(error)
            continue
        errors = {name: _error(what, name, row) for name, row in answered}
        failed = {
            name: each
            for name, each in errors.items()
            if each is not None and not (answer_lost and each.code is done_already)
        }
        for each in failed.values():
            if not each.retriable or each.code is final:
                raise each
            answer_lost |= each.code is ErrorCode.REQUEST_TIMED_OUT
        left = list(failed)
        if failed:
            retry.pause(next(iter(failed.values())))
