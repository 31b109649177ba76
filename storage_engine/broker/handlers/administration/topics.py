"""CreateTopics, CreatePartitions and DeleteTopics, which the controller serves.

Each topic of a request succeeds or fails by itself. The request is answered once, when all outcomes
are known or the client's timeout is over. A topic's outcome is known when the controller has done
its work (all partitions have leaders, or the topic is gone) and all live brokers have the new
metadata. Kafka waits for the controller's own metadata only, so a client that asks another broker
may have to ask again. The wait is short: a broker that takes no orders is waited for a few seconds
(`when_brokers_updated`), and then the topic counts as created, grown or deleted, which it is.
Source: R-CTL6.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import UUID

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.topic_admin import (
    MAX_PARTITIONS,
    PlannedTopic,
    RequestedTopic,
    TopicAdmin,
)
from storage_engine.broker.controller.acting_controller import replaced
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.controller.orders import acting_controller
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.dynamic_config import DynamicConfig, effective_settings
from storage_engine.core.control.cluster_state import TopicInfo
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import check_not_internal
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply, ZkStatus
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.protocol.apis.spec import Resp
from storage_engine.protocol.apis.wire import NO_TOPIC_ID
from storage_engine.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from storage_engine.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from storage_engine.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode

PlanT = TypeVar("PlanT")
TopicT = TypeVar(
    "TopicT", CreateTopicsRequest.CreatableTopic, CreatePartitionsRequest.CreatePartitionsTopic
)

LONGEST_WAIT_MS = 120_000
"""The longest timeout of a request; a longer one is shortened to this."""

TopicOutcome = KafkaError | None


class TopicOutcomes:
    """Collects one outcome per topic."""

    def __init__(
        self,
        names: Iterable[str],
        *,
        call: ApiCall[Resp],
        timeout_ms: int,
        answer: Callable[[dict[str, TopicOutcome]], Steps],
        controller: ControllerRunner,
        scheduler: Scheduler,
    ) -> None:
        """`answer` receives the outcomes by name, and responds."""
        self._call = call
        self._answer = answer
        self._controller = controller
        self._outcomes: dict[str, TopicOutcome] = {}
        self._open = set(names)
        self._decided: set[str] = set()
        """Topics without an outcome that are done, but not known to all brokers yet."""
        delay_ms = max(0, min(timeout_ms, LONGEST_WAIT_MS))
        self._deadline = RequestDeadline(scheduler, delay_ms, self._expire)
        if not self._open:
            self._finish()

    def settle(self, name: str, outcome: TopicOutcome) -> None:
        """Set the outcome of one topic; the first one counts."""
        if name in self._open:
            self._open.discard(name)
            self._outcomes[name] = outcome
            if not self._open:
                self._finish()

    def waits_for(self, name: str) -> bool:
        """Whether to read a topic again after a write without an answer. A broker that is no longer
        the controller answers its clients, and they ask the next controller."""
        return name in self._open and self._controller.acting is not None

    def on_topic_written(self, info: TopicInfo, failure: TopicOutcome) -> None:
        """A topic's node was written or not; the topic is done when its partitions have leaders."""
        acting = self._controller.acting
        if failure is None and acting is not None:
            acting.topic_changed(info, lambda outcome: self.on_decided(info.topic, outcome))
        else:
            # Otherwise the client would wait until its time is over.
            self.settle(info.topic, failure or replaced())

    def on_decided(self, name: str, failure: TopicOutcome) -> None:
        """The controller is done with a topic, or has failed; it is settled when the brokers know
        it: a client that asks one of them next must not get old metadata."""
        acting = self._controller.acting
        if failure is not None or acting is None:
            self.settle(name, failure)
        elif name in self._open:
            self._decided.add(name)
            acting.when_brokers_updated(lambda: self.settle(name, None))

    def _finish(self) -> None:
        if self._deadline.finish():
            self._call.run(self._answer(self._outcomes))

    def _expire(self) -> None:
        self._outcomes.update(dict.fromkeys(self._open & self._decided))
        for name in self._open - self._decided:
            self._outcomes[name] = KafkaError(
                f"'{name}' is being worked on, but is not done in the time allowed",
                ErrorCode.REQUEST_TIMED_OUT,
            )
        self._open.clear()
        self._call.run(self._answer(self._outcomes))


def write_each(
    call: ApiCall[Resp],
    topics: Sequence[TopicT],
    waiting: TopicOutcomes,
    plan: Callable[[TopicT], Generator[None, None, tuple[PlanT, int]]],
    write: Callable[[PlanT], None],
    *,
    too_many: str,
    validate_only: bool,
) -> Steps:
    """Write the change of each topic, and settle the others.

    `plan` returns the change and its number of new partitions, or raises KafkaError.
    `too_many`: the error for more than MAX_PARTITIONS new ones in all.
    """
    twice = duplicates(topic.name for topic in topics)
    room = MAX_PARTITIONS
    for topic in topics:
        yield None
        try:
            if topic.name in twice:
                raise KafkaError(f"'{topic.name}' is named twice", ErrorCode.INVALID_REQUEST)
            planned, partitions = yield from plan(topic)
            room -= partitions
            if room < 0:
                raise KafkaError(too_many, ErrorCode.POLICY_VIOLATION)
            if not validate_only:
                call.mutate(partitions)
        except KafkaError as failure:
            waiting.settle(topic.name, failure.as_outcome())
            continue
        if validate_only:
            waiting.settle(topic.name, None)
        else:
            write(planned)


def code_of(outcome: TopicOutcome) -> int:
    return 0 if outcome is None else int(outcome.code)


def text_of(outcome: TopicOutcome) -> str | None:
    return None if outcome is None else str(outcome)


def duplicates(names: Iterable[str]) -> set[str]:
    """The names that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


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

        def plan(
            topic: CreateTopicsRequest.CreatableTopic,
        ) -> Generator[None, None, tuple[PlannedTopic, int]]:
            found = planned[topic.name] = yield from self._plan(topic)
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
        """Describe the new topic (KIP-525). Guards hide it from clients without the right."""
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

    def _plan(
        self, topic: CreateTopicsRequest.CreatableTopic
    ) -> Generator[None, None, PlannedTopic]:
        """Check and plan a new topic. Raises KafkaError."""
        check_not_internal(topic.name, "create")
        self._check_absent(topic.name)
        planned = yield from self.topic_admin.planning(_new_topic(topic))
        # Others had their turns.
        self._check_absent(topic.name)
        return planned

    def _check_absent(self, topic: str) -> None:
        """Raises KafkaError where the topic exists, or another broker is the controller."""
        if acting_controller(self.controller).core.topic(topic) is not None:
            raise KafkaError(f"topic '{topic}' exists", ErrorCode.TOPIC_ALREADY_EXISTS)

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

    def _plan(
        self, topic: CreatePartitionsRequest.CreatePartitionsTopic
    ) -> Generator[None, None, tuple[TopicInfo, int]]:
        info = self._present(topic.name)
        given = None
        if topic.assignments is not None:
            given = [list(a.broker_ids) for a in topic.assignments]
        grown = yield from self.topic_admin.planning_growth(info, topic.count, given)
        # Others had their turns; the write compares what ZooKeeper has.
        self._present(topic.name)
        return grown, topic.count - len(info.assignment)

    def _present(self, name: str) -> TopicInfo:
        """The existing topic. Raises KafkaError."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsHandler:
    """Answers DeleteTopics."""

    controller: ControllerRunner
    config: DynamicConfig
    metadata: MetadataCache
    metadata_store: MetadataStore
    scheduler: Scheduler

    def handle(self, call: ApiCall[DeleteTopicsResponse], request: DeleteTopicsRequest) -> Steps:
        wanted = []
        for name, topic_id in _topics_of(request):
            wanted.append(self._identified(name, topic_id))
            yield None
        keys = [name if name is not None else str(topic_id) for name, topic_id in wanted]

        def answer(outcomes: dict[str, TopicOutcome]) -> Steps:
            results = []
            for (name, topic_id), key in zip(wanted, keys, strict=True):
                yield None
                outcome = outcomes.get(key)
                results.append(
                    DeleteTopicsResponse.DeletableTopicResult(
                        name=name,
                        topic_id=topic_id,
                        error_code=code_of(outcome),
                        error_message=text_of(outcome),
                    )
                )
            call.respond(DeleteTopicsResponse(responses=results))

        waiting = TopicOutcomes(
            keys,
            call=call,
            timeout_ms=request.timeout_ms,
            answer=answer,
            controller=self.controller,
            scheduler=self.scheduler,
        )
        twice = duplicates(keys)
        for (name, _topic_id), key in zip(wanted, keys, strict=True):
            yield None
            try:
                if key in twice:
                    raise KafkaError(f"'{key}' is named twice", ErrorCode.INVALID_REQUEST)
                present, partitions = self._present(name, key)
                call.check_allowed(ResourceType.TOPIC, present)
                call.mutate(partitions)
            except KafkaError as failure:
                waiting.settle(key, failure.as_outcome())
            else:
                self._delete(present, waiting)

    def _identified(self, name: str | None, topic_id: UUID) -> tuple[str | None, UUID]:
        """The topic's name and id, as far as they are known."""
        if name is None:
            return self.metadata.topic_name(topic_id), topic_id
        return name, self.metadata.topic_id(name) or topic_id

    def _present(self, name: str | None, key: str) -> tuple[str, int]:
        """The name and number of partitions of a topic that can be deleted. Raises KafkaError."""
        if not self.config.flag("delete.topic.enable"):
            raise KafkaError("delete.topic.enable is false", ErrorCode.TOPIC_DELETION_DISABLED)
        acting = acting_controller(self.controller)
        if name is None:
            raise KafkaError(f"no topic has the id {key}", ErrorCode.UNKNOWN_TOPIC_ID)
        check_not_internal(name, "delete")
        info = acting.core.topic(name)
        if info is None:
            raise KafkaError(f"topic '{name}' does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return name, len(info.assignment)

    def _delete(self, name: str, waiting: TopicOutcomes) -> None:
        def on_requested(reply: ZkReply) -> None:
            acting = self.controller.acting
            if not reply.ok and reply.status is not ZkStatus.NODE_EXISTS:
                late = KafkaError("ZooKeeper did not answer", ErrorCode.REQUEST_TIMED_OUT)
                waiting.settle(name, late)
            elif acting is None:
                waiting.settle(name, replaced())
            else:
                acting.delete_topic(name, lambda failure: waiting.on_decided(name, failure))

        self.metadata_store.create(
            DeleteTopicsZNode.topic_path(name), b"", on_requested, make_parents=True
        )


def _topics_of(request: DeleteTopicsRequest) -> list[tuple[str | None, UUID]]:
    """(name, id) of each topic: by name before version 6, by either since."""
    if request.topics:
        return [(item.name, item.topic_id) for item in request.topics]
    return [(name, NO_TOPIC_ID) for name in request.topic_names]
