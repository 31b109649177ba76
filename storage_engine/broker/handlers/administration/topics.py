"""CreateTopics, DeleteTopics and CreatePartitions: served by the controller.

Rule: each topic succeeds or fails by itself; a creation is answered when all partitions have
leaders, a deletion when the topic is gone, or when the client's time is over. Source: R-CTL6.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

from storage_engine.broker.cluster.topic_admin import MAX_PARTITIONS, NewTopic
from storage_engine.broker.controller.acting_controller import replaced
from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.handlers.controller.controller_only import acting_controller
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.control.cluster_state import TopicInfo
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.internal_topics import check_not_internal
from storage_engine.core.ports import ZkReply, ZkStatus
from storage_engine.protocol.apis.create_partitions import CreatePartitionsResponse
from storage_engine.protocol.apis.create_topics import CreateTopicsResponse
from storage_engine.protocol.apis.delete_topics import DeleteTopicsResponse
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode

LONGEST_WAIT_MS = 120_000
"""However long a client is willing to wait."""

Outcome = KafkaError | None


class _Outcomes:
    """Collects one outcome per name and answers once, at the latest when the time is over."""

    def __init__(
        self,
        context: BrokerContext,
        call: Call,
        names: list[str],
        timeout_ms: int,
        answer: Callable[[dict[str, Outcome]], Steps],
    ) -> None:
        self._call = call
        self._outcomes: dict[str, Outcome] = {}
        self._open = set(names)
        self._answer = answer
        delay_ms = max(0, min(timeout_ms, LONGEST_WAIT_MS))
        self._deadline = RequestDeadline(context.scheduler, delay_ms, self._expire)
        if not self._open:
            self._finish()

    def is_open(self, name: str) -> bool:
        """Whether somebody still waits for the outcome."""
        return name in self._open

    def settle(self, name: str, outcome: Outcome) -> None:
        if name in self._open:
            self._open.discard(name)
            self._outcomes[name] = outcome
            if not self._open:
                self._finish()

    def _finish(self) -> None:
        if self._deadline.finish():
            self._call.run(self._answer(self._outcomes))

    def _expire(self) -> None:
        for name in self._open:
            self._outcomes[name] = KafkaError(
                f"'{name}' is being worked on, but is not done in the time allowed",
                ErrorCode.REQUEST_TIMED_OUT,
            )
        self._open.clear()
        self._call.run(self._answer(self._outcomes))


def _code(outcome: Outcome) -> int:
    return 0 if outcome is None else int(outcome.code)


def _text(outcome: Outcome) -> str | None:
    return None if outcome is None else str(outcome)


def _duplicates(names: list[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


# --- CreateTopics ---


def create_topics(context: BrokerContext, call: Call, request: Any) -> Steps:
    names = [topic.name for topic in request.topics]
    planned: dict[str, Any] = {}

    def answer(outcomes: dict[str, Outcome]) -> Steps:
        results = []
        for name in dict.fromkeys(names):
            yield None
            outcome = outcomes.get(name)
            plan = planned.get(name)
            result = CreateTopicsResponse.CreatableTopicResult(
                name=name, error_code=_code(outcome), error_message=_text(outcome)
            )
            if outcome is None and plan is not None:
                assignment = plan.info.assignment
                result.topic_id = plan.info.topic_id
                result.num_partitions = len(assignment)
                result.replication_factor = len(assignment[0])
            results.append(result)
        call.respond(CreateTopicsResponse(topics=results))

    waiting = _Outcomes(context, call, list(dict.fromkeys(names)), request.timeout_ms, answer)
    duplicates = _duplicates(names)
    room = MAX_PARTITIONS
    for topic in request.topics:
        yield None
        try:
            if topic.name in duplicates:
                raise KafkaError(f"'{topic.name}' is named twice", ErrorCode.INVALID_REQUEST)
            acting = acting_controller(context)
            check_not_internal(topic.name, "create")
            if acting.core.topic(topic.name) is not None:
                raise KafkaError(f"topic '{topic.name}' exists", ErrorCode.TOPIC_ALREADY_EXISTS)
            plan = context.topic_admin.plan(_new_topic(topic))
            room -= len(plan.info.assignment)
            if room < 0:
                raise KafkaError(
                    f"topics of more than {MAX_PARTITIONS} partitions in one request: create "
                    "them in several",
                    ErrorCode.POLICY_VIOLATION,
                )
        except KafkaError as failure:
            waiting.settle(topic.name, failure.as_outcome())
            continue
        planned[topic.name] = plan
        if request.validate_only:
            waiting.settle(topic.name, None)
        else:
            _create(context, plan, waiting)


def _new_topic(topic: Any) -> NewTopic:
    assignment = {a.partition_index: tuple(a.broker_ids) for a in topic.assignments or ()}
    return NewTopic(
        topic=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=assignment or None,
        config={c.name: c.value for c in topic.configs or () if c.value is not None},
    )


def _create(context: BrokerContext, plan: Any, waiting: _Outcomes) -> None:
    name = plan.info.topic

    def on_written(failure: Outcome) -> None:
        _when_written(context, plan.info, failure, waiting)

    context.topic_admin.write(plan, on_written, lambda: _waits(context, waiting, name))


def _waits(context: BrokerContext, waiting: _Outcomes, name: str) -> bool:
    """Whether a write without an answer is worth another look. Once this broker is no longer the
    controller its clients are told so, and ask the next one."""
    return waiting.is_open(name) and context.controller.acting is not None


def _when_written(
    context: BrokerContext, info: TopicInfo, failure: Outcome, waiting: _Outcomes
) -> None:
    """A topic's node is written, or not: answer when all of the topic has leaders."""
    acting = context.controller.acting
    if failure is None and acting is not None:
        acting.topic_changed(info, lambda why: waiting.settle(info.topic, why))
    else:
        # Without a word from here the client would wait until its time is over.
        waiting.settle(info.topic, failure or replaced())


# --- DeleteTopics ---


def delete_topics(context: BrokerContext, call: Call, request: Any) -> Steps:
    wanted = []
    for item in _deletions(request):
        wanted.append(_named(context, item))
        yield None
    keys = [name if name is not None else str(topic_id) for name, topic_id in wanted]

    def answer(outcomes: dict[str, Outcome]) -> Steps:
        results = []
        for (name, topic_id), key in zip(wanted, keys, strict=True):
            yield None
            outcome = outcomes.get(key)
            results.append(
                DeleteTopicsResponse.DeletableTopicResult(
                    name=name,
                    topic_id=topic_id,
                    error_code=_code(outcome),
                    error_message=_text(outcome),
                )
            )
        call.respond(DeleteTopicsResponse(responses=results))

    waiting = _Outcomes(context, call, list(dict.fromkeys(keys)), request.timeout_ms, answer)
    duplicates = _duplicates(keys)
    for (name, _topic_id), key in zip(wanted, keys, strict=True):
        yield None
        try:
            if key in duplicates:
                raise KafkaError(f"'{key}' is named twice", ErrorCode.INVALID_REQUEST)
            if not context.config.flag("delete.topic.enable"):
                raise KafkaError("delete.topic.enable is false", ErrorCode.TOPIC_DELETION_DISABLED)
            acting = acting_controller(context)
            if name is None:
                raise KafkaError(f"no topic has the id {key}", ErrorCode.UNKNOWN_TOPIC_ID)
            check_not_internal(name, "delete")
            if acting.core.topic(name) is None:
                raise KafkaError(
                    f"topic '{name}' does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
        except KafkaError as failure:
            waiting.settle(key, failure.as_outcome())
            continue
        _delete(context, name, waiting)


def _deletions(request: Any) -> list[tuple[str | None, UUID]]:
    none = UUID(int=0)
    if request.topics:
        return [(item.name, item.topic_id or none) for item in request.topics]
    return [(name, none) for name in request.topic_names or ()]


def _named(context: BrokerContext, item: tuple[str | None, UUID]) -> tuple[str | None, UUID]:
    name, topic_id = item
    if name is None:
        return context.metadata.topic_name(topic_id), topic_id
    return name, context.metadata.topic_id(name) or topic_id


def _delete(context: BrokerContext, name: str, waiting: _Outcomes) -> None:
    def on_requested(reply: ZkReply) -> None:
        acting = context.controller.acting
        if reply.ok or reply.status is ZkStatus.NODE_EXISTS:
            if acting is not None:
                acting.delete_topic(name, lambda failure: waiting.settle(name, failure))
            else:
                waiting.settle(name, replaced())
        else:
            waiting.settle(
                name,
                KafkaError("ZooKeeper did not answer", ErrorCode.REQUEST_TIMED_OUT),
            )

    context.metadata_store.create(
        DeleteTopicsZNode.topic_path(name), b"", on_requested, make_parents=True
    )


# --- CreatePartitions ---


def create_partitions(context: BrokerContext, call: Call, request: Any) -> Steps:
    names = [topic.name for topic in request.topics]

    def answer(outcomes: dict[str, Outcome]) -> Steps:
        results = []
        for name in dict.fromkeys(names):
            result = CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=name,
                error_code=_code(outcomes.get(name)),
                error_message=_text(outcomes.get(name)),
            )
            results.append(result)
            yield None
        call.respond(CreatePartitionsResponse(results=results))

    waiting = _Outcomes(context, call, list(dict.fromkeys(names)), request.timeout_ms, answer)
    duplicates = _duplicates(names)
    room = MAX_PARTITIONS
    for topic in request.topics:
        yield None
        try:
            if topic.name in duplicates:
                raise KafkaError(f"'{topic.name}' is named twice", ErrorCode.INVALID_REQUEST)
            acting = acting_controller(context)
            check_not_internal(topic.name, "grow")
            info = acting.core.topic(topic.name)
            if info is None or acting.core.is_deleting(topic.name):
                raise KafkaError(
                    f"topic '{topic.name}' does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
            given = None
            if topic.assignments is not None:
                given = [list(a.broker_ids) for a in topic.assignments]
            grown = context.topic_admin.plan_growth(info, topic.count, given)
            room -= topic.count - len(info.assignment)
            if room < 0:
                raise KafkaError(
                    f"more than {MAX_PARTITIONS} partitions in one request: add them in several",
                    ErrorCode.POLICY_VIOLATION,
                )
        except KafkaError as failure:
            waiting.settle(topic.name, failure.as_outcome())
            continue
        if request.validate_only:
            waiting.settle(topic.name, None)
        else:
            _grow(context, grown, waiting)


def _grow(context: BrokerContext, grown: TopicInfo, waiting: _Outcomes) -> None:
    def on_written(failure: Outcome) -> None:
        _when_written(context, grown, failure, waiting)

    context.topic_admin.write_growth(
        grown, on_written, lambda: _waits(context, waiting, grown.topic)
    )
