"""CreateTopics: served by the controller.

The answer comes when all partitions have leaders and live brokers know them, or when the client's
timeout is over (see `topic_outcomes`). Source: R-CTL6.
"""

from dataclasses import dataclass
from functools import partial

from storage_engine.broker.cluster.topic_admin import (
    MAX_PARTITIONS,
    PlannedTopic,
    RequestedTopic,
    TopicAdmin,
)
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.handlers.administration.topic_outcomes import (
    TopicOutcome,
    TopicOutcomes,
    code_of,
    text_of,
    write_each,
)
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.controller.controller_only import acting_controller
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.dynamic_config import DynamicConfig, effective_settings
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import check_not_internal
from storage_engine.core.ports import Scheduler
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

FIRST_WITH_SETTINGS = 5

_Created = CreateTopicsResponse.CreatableTopicResult


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsHandler:
    """Answers CreateTopics."""

    controller: ControllerRunner
    topic_admin: TopicAdmin
    config: DynamicConfig
    scheduler: Scheduler

    def handle(self, call: ApiCall[CreateTopicsResponse], request: CreateTopicsRequest) -> Steps:
        names = list(dict.fromkeys(topic.name for topic in request.topics))
        planned: dict[str, PlannedTopic] = {}

        def answer(outcomes: dict[str, TopicOutcome]) -> Steps:
            results = []
            for name in names:
                yield None
                result, plan = _result(name, outcomes.get(name)), planned.get(name)
                if not result.error_code and plan is not None:
                    self._describe(result, plan, with_settings=call.version >= FIRST_WITH_SETTINGS)
                results.append(result)
            call.respond(CreateTopicsResponse(topics=results))

        waiting = TopicOutcomes(
            names,
            call=call,
            timeout_ms=request.timeout_ms,
            answer=answer,
            controller=self.controller,
            scheduler=self.scheduler,
        )

        def plan(topic: CreateTopicsRequest.CreatableTopic) -> tuple[PlannedTopic, int]:
            found = planned[topic.name] = self._plan(topic)
            return found, len(found.info.assignment)

        too_many = (
            f"topics of more than {MAX_PARTITIONS} partitions in one request: create them in "
            "several"
        )
        write = partial(self._create, call, waiting)
        yield from write_each(
            call,
            request.topics,
            waiting,
            plan,
            write,
            too_many=too_many,
            validate_only=request.validate_only,
        )

    def _describe(self, result: _Created, plan: PlannedTopic, *, with_settings: bool) -> None:
        """Says what the topic is like (KIP-525). Guards hide it from who may not know."""
        assignment = plan.info.assignment
        result.topic_id = plan.info.topic_id
        result.num_partitions = len(assignment)
        result.replication_factor = len(assignment[0])
        if with_settings:
            result.configs = [
                _Created.CreatableTopicConfigs(
                    name=each.name,
                    value=each.value,
                    read_only=False,
                    config_source=int(each.source),
                    is_sensitive=False,
                )
                for each in effective_settings(self.config, plan.config)
            ]

    def _plan(self, topic: CreateTopicsRequest.CreatableTopic) -> PlannedTopic:
        """Raises KafkaError."""
        acting = acting_controller(self.controller)
        check_not_internal(topic.name, "create")
        if acting.core.topic(topic.name) is not None:
            raise KafkaError(f"topic '{topic.name}' exists", ErrorCode.TOPIC_ALREADY_EXISTS)
        return self.topic_admin.plan(_new_topic(topic))

    def _create(
        self, call: ApiCall[CreateTopicsResponse], waiting: TopicOutcomes, plan: PlannedTopic
    ) -> None:
        info = plan.info
        self.topic_admin.write(
            plan,
            lambda failure: waiting.on_topic_written(info, failure),
            lambda: waiting.waits_for(info.topic),
            check_allowed=lambda: call.check_allowed(ResourceType.TOPIC, info.topic),
        )


def _new_topic(topic: CreateTopicsRequest.CreatableTopic) -> RequestedTopic:
    assignment = {a.partition_index: tuple(a.broker_ids) for a in topic.assignments or ()}
    return RequestedTopic(
        topic=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=assignment or None,
        config={c.name: c.value for c in topic.configs or () if c.value is not None},
    )


def _result(name: str, outcome: TopicOutcome) -> _Created:
    return _Created(name=name, error_code=code_of(outcome), error_message=text_of(outcome))
