"""CreatePartitions: served by the controller.

The answer comes when all partitions have leaders and live brokers know them, or when the client's
timeout is over (see `topic_outcomes`). Source: R-CTL6.
"""

from dataclasses import dataclass
from functools import partial

from storage_engine.broker.cluster.topic_admin import MAX_PARTITIONS, TopicAdmin
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
from storage_engine.core.control.cluster_state import TopicInfo
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import check_not_internal
from storage_engine.core.ports import Scheduler
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsHandler:
    """Answers CreatePartitions."""

    controller: ControllerRunner
    topic_admin: TopicAdmin
    scheduler: Scheduler

    def handle(
        self, call: ApiCall[CreatePartitionsResponse], request: CreatePartitionsRequest
    ) -> Steps:
        names = list(dict.fromkeys(topic.name for topic in request.topics))

        def answer(outcomes: dict[str, TopicOutcome]) -> Steps:
            results = []
            for name in names:
                result = CreatePartitionsResponse.CreatePartitionsTopicResult(
                    name=name,
                    error_code=code_of(outcomes.get(name)),
                    error_message=text_of(outcomes.get(name)),
                )
                results.append(result)
                yield None
            call.respond(CreatePartitionsResponse(results=results))

        waiting = TopicOutcomes(
            names,
            call=call,
            timeout_ms=request.timeout_ms,
            answer=answer,
            controller=self.controller,
            scheduler=self.scheduler,
        )
        too_many = f"more than {MAX_PARTITIONS} partitions in one request: add them in several"
        write = partial(self._grow, call, waiting)
        yield from write_each(
            call,
            request.topics,
            waiting,
            self._plan,
            write,
            too_many=too_many,
            validate_only=request.validate_only,
        )

    def _plan(self, topic: CreatePartitionsRequest.CreatePartitionsTopic) -> tuple[TopicInfo, int]:
        info = self._present(topic.name)
        given = None
        if topic.assignments is not None:
            given = [list(a.broker_ids) for a in topic.assignments]
        grown = self.topic_admin.plan_growth(info, topic.count, given)
        return grown, topic.count - len(info.assignment)

    def _present(self, name: str) -> TopicInfo:
        """The topic as it is. Raises KafkaError."""
        acting = acting_controller(self.controller)
        check_not_internal(name, "grow")
        info = acting.core.topic(name)
        if info is None or acting.core.is_deleting(name):
            raise KafkaError(f"topic '{name}' does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return info

    def _grow(
        self, call: ApiCall[CreatePartitionsResponse], waiting: TopicOutcomes, grown: TopicInfo
    ) -> None:
        self.topic_admin.write_growth(
            grown,
            lambda failure: waiting.on_topic_written(grown, failure),
            lambda: waiting.waits_for(grown.topic),
            check_allowed=partial(call.check_allowed, ResourceType.TOPIC, grown.topic),
        )
