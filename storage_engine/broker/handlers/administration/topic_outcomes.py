"""The outcomes of a request that creates, deletes or grows topics.

Each topic succeeds or fails by itself; the request is answered once, when all outcomes are known or
when the client's timeout is over.

A topic's outcome is known when the controller is done with it and has told all live brokers. Kafka
waits for the controller's own metadata alone, so that a client that asks another broker must ask
again; and here the controller's broker is told like the others. The wait is short where all brokers
take orders. One that does not makes nothing fail: it is waited for a few seconds (`when_told`),
or until the client's timeout, and then the topic counts as made, grown or deleted, which it is.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from storage_engine.broker.cluster.topic_admin import MAX_PARTITIONS
from storage_engine.broker.controller.acting_controller import replaced
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.control.cluster_state import TopicInfo
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.apis.spec import Resp
from storage_engine.protocol.messages.create_partitions import CreatePartitionsRequest
from storage_engine.protocol.messages.create_topics import CreateTopicsRequest

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
        """`answer` gets the outcomes by name, and responds."""
        self._call = call
        self._answer = answer
        self._controller = controller
        self._outcomes: dict[str, TopicOutcome] = {}
        self._open = set(names)
        self._decided: set[str] = set()
        """The open ones that have succeeded, and of which brokers are being told."""
        delay_ms = max(0, min(timeout_ms, LONGEST_WAIT_MS))
        self._deadline = RequestDeadline(scheduler, delay_ms, self._expire)
        if not self._open:
            self._finish()

    def settle(self, name: str, outcome: TopicOutcome) -> None:
        """The outcome of one topic; the first one counts."""
        if name in self._open:
            self._open.discard(name)
            self._outcomes[name] = outcome
            if not self._open:
                self._finish()

    def waits_for(self, name: str) -> bool:
        """Whether a write that ZooKeeper did not answer should be looked at again. A broker that is
        no longer the controller answers its clients, and they ask the next controller."""
        return name in self._open and self._controller.acting is not None

    def on_topic_written(self, info: TopicInfo, failure: TopicOutcome) -> None:
        """A topic's node is written, or not: it is settled when all its partitions have leaders."""
        acting = self._controller.acting
        if failure is None and acting is not None:
            acting.topic_changed(info, lambda outcome: self.on_decided(info.topic, outcome))
        else:
            # Otherwise the client would wait until its time is over.
            self.settle(info.topic, failure or replaced())

    def on_decided(self, name: str, failure: TopicOutcome) -> None:
        """The controller is done with a topic, or not: it is settled when brokers know that. Who
        asks one of them next would else be told of the past."""
        acting = self._controller.acting
        if failure is not None or acting is None:
            self.settle(name, failure)
        elif name in self._open:
            self._decided.add(name)
            acting.when_told(lambda: self.settle(name, None))

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
    plan: Callable[[TopicT], tuple[PlanT, int]],
    write: Callable[[PlanT], None],
    *,
    too_many: str,
    validate_only: bool,
) -> Steps:
    """Write what is asked for each topic, and settle the others.

    `plan` returns what is to be written, and of how many new partitions; or raises KafkaError.
    `too_many` says that all together are more than MAX_PARTITIONS.
    """
    twice = duplicates(topic.name for topic in topics)
    room = MAX_PARTITIONS
    for topic in topics:
        yield None
        try:
            if topic.name in twice:
                raise KafkaError(f"'{topic.name}' is named twice", ErrorCode.INVALID_REQUEST)
            planned, partitions = plan(topic)
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
    """The error code of an answer."""
    return 0 if outcome is None else int(outcome.code)


def text_of(outcome: TopicOutcome) -> str | None:
    """The error message of an answer."""
    return None if outcome is None else str(outcome)


def duplicates(names: Iterable[str]) -> set[str]:
    """The names that stand there more than once."""
    return {name for name, count in Counter(names).items() if count > 1}
