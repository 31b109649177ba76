"""DeleteTopics: served by the controller.

The answer comes when the topics are gone and live brokers know it, or when the client's timeout is
over (see `topic_outcomes`). Source: R-CTL6.
"""

from dataclasses import dataclass
from uuid import UUID

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.controller.acting_controller import replaced
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.handlers.administration.topic_outcomes import (
    TopicOutcome,
    TopicOutcomes,
    code_of,
    duplicates,
    text_of,
)
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.controller.controller_only import acting_controller
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import check_not_internal
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply, ZkStatus
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.protocol.apis.wire import NO_TOPIC_ID
from storage_engine.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode


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
        """The name of a topic that can be deleted, and its number of partitions. Raises
        KafkaError."""
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
    """(name, id) of each: by names before version 6, by either from it on."""
    if request.topics:
        return [(item.name, item.topic_id) for item in request.topics]
    return [(name, NO_TOPIC_ID) for name in request.topic_names]
