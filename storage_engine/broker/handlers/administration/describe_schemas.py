"""DescribeSchemas: the schemas of topics.

A broker that has a replica of a topic answers from what it works by, also while ZooKeeper is away.
For other topics it reads ZooKeeper, for a second at most; then its answer is retriable, and the
client asks a leader of the topic.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.config_store import ConfigEntity, ConfigStore
from storage_engine.broker.settings.topic_config import TopicConfigs, unreadable_schema
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Scheduler
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING
from storage_engine.core.typed.unreadable_schema import UnreadableSchema
from storage_engine.protocol.apis.describe_schemas import (
    MAX_TOPICS,
    DescribedSchema,
    DescribeSchemasRequest,
    DescribeSchemasResponse,
)

READ_MS = 1000
"""How long ZooKeeper is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeSchemasHandler:
    """Answers DescribeSchemas."""

    topics: TopicConfigs
    config_store: ConfigStore
    metadata: MetadataCache
    scheduler: Scheduler

    def handle(
        self, call: ApiCall[DescribeSchemasResponse], request: DescribeSchemasRequest
    ) -> Steps:
        names = list(dict.fromkeys(request.topics))
        rows: dict[str, DescribedSchema] = {}

        def settle(row: DescribedSchema) -> None:
            rows[row.topic] = row
            if len(rows) == len(names):
                call.respond(DescribeSchemasResponse(topics=[rows[name] for name in names]))

        if not names:
            call.respond(DescribeSchemasResponse(topics=[]))
        for name in names:
            yield None
            if len(names) > MAX_TOPICS:
                text = f"a request names at most {MAX_TOPICS} topics: send several"
                settle(_error(name, ErrorCode.INVALID_REQUEST, text))
            else:
                self._describe(name, settle)

    def _describe(self, topic: str, settle: Callable[[DescribedSchema], None]) -> None:
        topic_id = self.metadata.topic_id(topic)
        own = self.topics.overrides(topic)
        if topic_id is None:
            text = f"topic '{topic}' does not exist"
            settle(_error(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
        elif (unreadable := self.topics.unreadable_schema(topic)) is not None:
            settle(_unreadable(topic, unreadable))
        elif own is not None:
            settle(_described(topic, topic_id, own))
        else:
            self._read(topic, topic_id, settle)

    def _read(self, topic: str, topic_id: UUID, settle: Callable[[DescribedSchema], None]) -> None:
        is_settled = False

        def once(row: DescribedSchema) -> None:
            nonlocal is_settled
            if not is_settled:
                is_settled = True
                timer.cancel()
                settle(row)

        def on_read(settings: Mapping[str, str] | None) -> None:
            if settings is None or self.metadata.topic_id(topic) != topic_id:
                # Not answered; or another topic has its name by now.
                once(_unanswered(topic))
            elif (unreadable := unreadable_schema(settings)) is not None:
                once(_unreadable(topic, unreadable))
            else:
                once(_described(topic, topic_id, settings))

        timer = self.scheduler.call_later(READ_MS, lambda: once(_unanswered(topic)))
        self.config_store.read(ConfigEntity.topic(topic), on_read)


def _described(topic: str, topic_id: UUID, settings: Mapping[str, str]) -> DescribedSchema:
    return DescribedSchema(topic=topic, topic_id=topic_id, schema=settings.get(SCHEMA_SETTING))


def _unreadable(topic: str, schema: UnreadableSchema) -> DescribedSchema:
    text = f"its schema can't be read on this broker: {schema.reason}"
    return _error(topic, ErrorCode.UNKNOWN_SCHEMA_VERSION, text)


def _unanswered(topic: str) -> DescribedSchema:
    text = f"ZooKeeper did not answer, and this broker has no replica of '{topic}': ask its leader"
    return _error(topic, ErrorCode.LEADER_NOT_AVAILABLE, text)


def _error(topic: str, code: ErrorCode, text: str) -> DescribedSchema:
    return DescribedSchema(topic=topic, error_code=int(code), error_message=text)
