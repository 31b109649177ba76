"""Topics and settings: create, delete, grow, describe, alter.

Requests go to the controller, and to the next one when it has changed. After a lost answer the call
succeeds when the change turns out to be made. Source: R-CTL6, R-TOOL1; KIP-4, KIP-339.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage_engine.client.cluster import LATEST, Cluster
from storage_engine.client.retry import Retry, pause_ms
from storage_engine.core.errors import (
    ConfigError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition, topic_name_problem
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.net.deadline import Deadline, sleep_ms
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages.create_partitions import API as CREATE_PARTITIONS
from storage_engine.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from storage_engine.protocol.messages.create_topics import API as CREATE_TOPICS
from storage_engine.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from storage_engine.protocol.messages.delete_topics import API as DELETE_TOPICS
from storage_engine.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
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


class _Outcome(NamedTuple):
    """The outcome for one topic or resource of a request."""

    name: str
    code: ErrorCode
    message: str | None


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
    wanted = list(topics)
    for topic in wanted:
        if (problem := topic_name_problem(topic.name)) is not None:
            raise KafkaError(problem, ErrorCode.INVALID_TOPIC_EXCEPTION)

    def message(left: Iterable[str]) -> CreateTopicsRequest:
        names = set(left)
        return CreateTopicsRequest(
            topics=[_creatable(topic) for topic in wanted if topic.name in names],
            timeout_ms=cluster.request_timeout_ms,
            validate_only=validate_only,
        )

    _ask_controller(
        cluster,
        CREATE_TOPICS,
        [topic.name for topic in wanted],
        message,
        lambda answer: [_outcome(each) for each in answer.topics],
        done_already=ErrorCode.TOPIC_ALREADY_EXISTS,
    )
    if not validate_only:
        _wait_for_leaders(cluster, [topic.name for topic in wanted])


def _creatable(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    row = CreateTopicsRequest.CreatableTopic
    configs = [
        row.CreatableTopicConfig(name=key, value=str(value)) for key, value in topic.configs.items()
    ]
    if topic.assignment is None:
        return row(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=configs,
        )
    return row(
        name=topic.name,
        num_partitions=BROKER_DEFAULT,
        replication_factor=BROKER_DEFAULT,
        assignments=[
            row.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignment.items()
        ],
        configs=configs,
    )


def _wait_for_leaders(cluster: Cluster, names: Sequence[str]) -> None:
    deadline = Deadline.after(cluster.deadline_ms)
    attempt = 0
    while True:
        view = cluster.metadata(names)
        # Who may create a topic may perhaps not see it: there is nothing to wait for then.
        unseen = [
            name
            for name, code in view.errors.items()
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ]
        if len(view.topics) + len(unseen) == len(set(names)) and all(
            partition.leader >= 0
            for topic in view.topics.values()
            for partition in topic.partitions.values()
        ):
            # An elected leader may not have its order yet; once it has, it answers with offsets.
            cluster.list_offsets(
                {
                    TopicPartition(name, number): LATEST
                    for name, topic in view.topics.items()
                    for number in topic.partitions
                }
            )
            return
        deadline.check(f"created, but no leader for every partition of {', '.join(names)}")
        sleep_ms(min(pause_ms(attempt), deadline.left_ms))
        attempt += 1


def delete_topics(cluster: Cluster, names: Iterable[str]) -> None:
    """Delete topics; returns when the brokers asked do not list them any more."""
    wanted = list(dict.fromkeys(names))

    def message(left: Iterable[str]) -> DeleteTopicsRequest:
        # Version 6 has `topics`, those before have `topic_names`; the codec takes what its version
        # knows.
        names_left = list(left)
        return DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names_left],
            topic_names=names_left,
            timeout_ms=cluster.request_timeout_ms,
        )

    _ask_controller(
        cluster,
        DELETE_TOPICS,
        wanted,
        message,
        lambda answer: [_outcome(each) for each in answer.responses],
        done_already=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        final=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    deadline = Deadline.after(cluster.deadline_ms)
    attempt = 0
    while cluster.metadata(wanted).topics:
        deadline.check(
            f"{', '.join(wanted)} can't be deleted before all its brokers are up; not gone"
        )
        sleep_ms(min(pause_ms(attempt), deadline.left_ms))
        attempt += 1


def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> None:
    """Raise the number of partitions of topics to `counts`; returns when each has a leader."""

    def message(left: Iterable[str]) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(
                    name=name, count=counts[name], assignments=None
                )
                for name in left
            ],
            timeout_ms=cluster.request_timeout_ms,
            validate_only=False,
        )

    _ask_controller(
        cluster,
        CREATE_PARTITIONS,
        list(counts),
        message,
        lambda answer: [_outcome(each) for each in answer.results],
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
        outcome, settings = _described(cluster.ask_any(DESCRIBE_CONFIGS, message))
        if outcome.code is ErrorCode.NONE:
            return settings
        if outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            cluster.topic(topic)  # raises where the topic does not come to be
        retry.pause(_error("settings of topic", outcome))


def describe_broker_configs(cluster: Cluster, broker_id: int) -> dict[str, ConfigEntry]:
    """The settings of a broker, from the broker itself."""
    message = _describe_request(_BROKER_RESOURCE, str(broker_id))
    outcome, settings = _described(cluster.request(broker_id, DESCRIBE_CONFIGS, message))
    if outcome.code is not ErrorCode.NONE:
        raise _error("settings of broker", outcome)
    return settings


def _describe_request(resource_type: int, name: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource])


def _described(answer: DescribeConfigsResponse) -> tuple[_Outcome, dict[str, ConfigEntry]]:
    result = answer.results[0]
    outcome = _Outcome(result.resource_name, ErrorCode.of(result.error_code), result.error_message)
    return outcome, {
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
    """Set some of a topic's settings, and set those of `remove` back to the broker's."""
    _alter_configs(cluster, _TOPIC_RESOURCE, topic, values, remove)


def alter_broker_configs(
    cluster: Cluster, broker: str, values: Mapping[str, str], *, remove: Iterable[str] = ()
) -> None:
    """Set some of a broker's settings at run time, or of ALL_BROKERS."""
    _alter_configs(cluster, _BROKER_RESOURCE, broker, values, remove)


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
        row.AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in remove
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
        lambda answer: [
            _Outcome(each.resource_name, ErrorCode.of(each.error_code), each.error_message)
            for each in answer.responses
        ],
        final=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        what="topic" if resource_type == _TOPIC_RESOURCE else "broker",
    )


def _outcome(
    row: CreateTopicsResponse.CreatableTopicResult
    | CreatePartitionsResponse.CreatePartitionsTopicResult
    | DeleteTopicsResponse.DeletableTopicResult,
) -> _Outcome:
    return _Outcome(row.name or "", ErrorCode.of(row.error_code), row.error_message)


def _error(what: str, outcome: _Outcome) -> KafkaError:
    text = outcome.message or outcome.code.meaning
    if f"'{outcome.name}'" not in text:
        text = f"{what} '{outcome.name}': {text}"
    return KafkaError(text, outcome.code)


def _ask_controller(
    cluster: Cluster,
    spec: ApiSpec[Req, Resp],
    names: Sequence[str],
    message: Callable[[Iterable[str]], Req],
    outcomes: Callable[[Resp], list[_Outcome]],
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
            rows = outcomes(cluster.request(controller_of(cluster), spec, message(left)))
        except (KafkaError, DeadlineExceededError) as error:
            answer_lost = True
            pause(cluster, retry, error)
            continue
        failed = [
            row
            for row in rows
            if row.code is not ErrorCode.NONE and not (answer_lost and row.code is done_already)
        ]
        for row in failed:
            if not row.code.retriable or row.code is final:
                raise _error(what, row)
            answer_lost |= row.code is ErrorCode.REQUEST_TIMED_OUT
        left = [row.name for row in failed]
        if failed:
            pause(cluster, retry, _error(what, failed[0]))


def pause(cluster: Cluster, retry: Retry, error: HeadraceError) -> None:
    """Waits before the controller is asked again: another broker may be controller by then."""
    retry.pause(error)
    cluster.refresh([])


def controller_of(cluster: Cluster) -> int:
    """Asked for anew. KafkaError while there is none."""
    view = cluster.metadata([])
    if view.controller_id not in view.brokers:
        raise KafkaError(
            f"the cluster of {cluster.bootstrap_servers} has no controller at the moment",
            ErrorCode.NOT_CONTROLLER,
        )
    return view.controller_id
