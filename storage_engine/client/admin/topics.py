"""Topics and settings: create, delete, grow, describe, alter.

Requests go to the controller, and to the next one when it has changed. After a lost answer the call
succeeds when the change turns out to be made. Source: R-CTL6, R-TOOL1; KIP-4, KIP-339.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
from storage_engine.protocol.apis.registry import api_of
from storage_engine.protocol.apis.spec import AnyApi

BROKER_DEFAULT = -1
"""Given as a number of partitions or replicas, it means the broker's default."""

ALL_BROKERS = ""
"""Given in place of a broker id, it means the settings that apply to every broker."""

_CREATE_TOPICS = 19
_DELETE_TOPICS = 20
_DESCRIBE_CONFIGS = 32
_CREATE_PARTITIONS = 37
_INCREMENTAL_ALTER_CONFIGS = 44

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
    spec, request = api_of(_CREATE_TOPICS)
    row = request.CreatableTopic

    def message(left: Iterable[str]) -> Any:
        names = set(left)
        return request(
            topics=[_creatable(row, topic) for topic in wanted if topic.name in names],
            timeout_ms=cluster.request_timeout_ms,
            validate_only=validate_only,
        )

    _ask_controller(
        cluster,
        spec,
        [topic.name for topic in wanted],
        message,
        lambda answer: [_outcome(each) for each in answer.topics],
        done_already=ErrorCode.TOPIC_ALREADY_EXISTS,
    )
    if not validate_only:
        _wait_for_leaders(cluster, [topic.name for topic in wanted])


def _creatable(row: Any, topic: NewTopic) -> Any:
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
    spec, request = api_of(_DELETE_TOPICS)

    def message(left: Iterable[str]) -> Any:
        # Version 6 has `topics`, those before have `topic_names`; the codec takes what its version
        # knows.
        names_left = list(left)
        return request(
            topics=[request.DeleteTopicState(name=name) for name in names_left],
            topic_names=names_left,
            timeout_ms=cluster.request_timeout_ms,
        )

    _ask_controller(
        cluster,
        spec,
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
    spec, request = api_of(_CREATE_PARTITIONS)

    def message(left: Iterable[str]) -> Any:
        return request(
            topics=[
                request.CreatePartitionsTopic(name=name, count=counts[name], assignments=None)
                for name in left
            ],
            timeout_ms=cluster.request_timeout_ms,
            validate_only=False,
        )

    _ask_controller(
        cluster,
        spec,
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
    spec, message = _describe_request(_TOPIC_RESOURCE, topic)
    retry = Retry(f"settings of topic '{topic}'", Deadline.after(cluster.deadline_ms))
    while True:
        outcome, settings = _described(cluster.ask_any(spec, message))
        if outcome.code is ErrorCode.NONE:
            return settings
        if outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            cluster.topic(topic)  # raises where the topic does not come to be
        retry.pause(_error("settings of topic", outcome))


def describe_broker_configs(cluster: Cluster, broker_id: int) -> dict[str, ConfigEntry]:
    """The settings of a broker, from the broker itself."""
    spec, message = _describe_request(_BROKER_RESOURCE, str(broker_id))
    outcome, settings = _described(cluster.request(broker_id, spec, message))
    if outcome.code is not ErrorCode.NONE:
        raise _error("settings of broker", outcome)
    return settings


def _describe_request(resource_type: int, name: str) -> tuple[AnyApi, Any]:
    spec, request = api_of(_DESCRIBE_CONFIGS)
    resource = request.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    return spec, request(resources=[resource], include_synonyms=False, include_documentation=False)


def _described(answer: Any) -> tuple[_Outcome, dict[str, ConfigEntry]]:
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
    spec, request = api_of(_INCREMENTAL_ALTER_CONFIGS)
    row = request.AlterConfigsResource
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
        spec,
        [name],
        lambda _: request(resources=[resource], validate_only=False),
        lambda answer: [
            _Outcome(each.resource_name, ErrorCode.of(each.error_code), each.error_message)
            for each in answer.responses
        ],
        final=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        what="topic" if resource_type == _TOPIC_RESOURCE else "broker",
    )


def _outcome(row: Any) -> _Outcome:
    return _Outcome(row.name, ErrorCode.of(row.error_code), getattr(row, "error_message", None))


def _error(what: str, outcome: _Outcome) -> KafkaError:
    text = outcome.message or outcome.code.meaning
    if f"'{outcome.name}'" not in text:
        text = f"{what} '{outcome.name}': {text}"
    return KafkaError(text, outcome.code)


def _ask_controller(
    cluster: Cluster,
    spec: AnyApi,
    names: Sequence[str],
    message: Callable[[Iterable[str]], Any],
    outcomes: Callable[[Any], list[_Outcome]],
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
