"""DescribeConfigs: the settings of topics and brokers, with where each value comes from and what it
means.

Settings of topics are read from ZooKeeper at each request, so that any broker gives the same
answer. Source: R-TOOL1, KIP-226 (sources and synonyms).

ListConfigResources: the topics and brokers of the cluster, which have settings, and the brokers
once more as resources with loggers. Source: KIP-1142.

DescribeSchemas: the schemas of topics.

A broker that has a replica of a topic answers from its own settings, also while ZooKeeper is away.
For other topics it reads ZooKeeper, for a second at most; then its answer is retriable, and the
client asks a leader of the topic.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from uuid import UUID

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.administration import broker_loggers
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.config_store import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigEntity,
    ConfigStore,
)
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.group_config import GROUP_SETTINGS, possible_of_group
from storage_engine.broker.settings.listener_map import ListenerKey
from storage_engine.broker.settings.topic_config import (
    TopicConfigs,
    possible_overrides,
    unreadable_schema,
)
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import Scheduler
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.core.settings.setting import Setting, SettingType
from storage_engine.core.settings.settings import BY_BROKER_KEY, BY_TOPIC_KEY
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING
from storage_engine.core.typed.unreadable_schema import UnreadableSchema
from storage_engine.protocol.apis.describe_schemas import (
    MAX_TOPICS,
    DescribedSchema,
    DescribeSchemasRequest,
    DescribeSchemasResponse,
)
from storage_engine.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from storage_engine.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

FIRST_FLEXIBLE = 4
LONGEST_STRING = 0x7FFF
"""The longest string in bytes before version FIRST_FLEXIBLE. The schema of a topic may be longer;
older versions get the setting without its value."""

_Resource = DescribeConfigsRequest.DescribeConfigsResource
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = _Result.DescribeConfigsResourceResult


class _Synonym(NamedTuple):
    """A value of a setting, with its name and source."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsHandler:
    """Answers DescribeConfigs."""

    broker_id: BrokerId
    config: DynamicConfig
    config_store: ConfigStore
    metadata: MetadataCache

    def handle(
        self, call: ApiCall[DescribeConfigsResponse], request: DescribeConfigsRequest
    ) -> Steps:
        results: dict[int, _Result] = {}
        count = len(request.resources)

        def settle(index: int, result: _Result) -> None:
            results[index] = result
            if len(results) == count:
                rows = [results[each] for each in range(count)]
                call.respond(DescribeConfigsResponse(results=rows))

        if not count:
            call.respond(DescribeConfigsResponse(results=[]))
        named: set[tuple[int, str]] = set()
        for index, resource in enumerate(request.resources):
            yield None
            key = resource.resource_type, resource.resource_name
            if key in named:
                # The answer has all settings: a repeated name costs a client little and us much.
                text = f"'{resource.resource_name}' is named twice"
                settle(index, _error(resource, ErrorCode.INVALID_REQUEST, text))
                continue
            named.add(key)
            if resource.resource_type == TOPIC_RESOURCE:
                longest = None if call.version >= FIRST_FLEXIBLE else LONGEST_STRING
                self._describe_topic(request, resource, partial(settle, index), longest)
            elif resource.resource_type == GROUP_RESOURCE:
                self._describe_group(request, resource, partial(settle, index))
            elif resource.resource_type == BROKER_RESOURCE:
                settle(index, self._describe_broker(request, resource))
            elif resource.resource_type == BROKER_LOGGER_RESOURCE:
                settle(index, self._describe_loggers(resource))
            else:
                text = f"resources of type {resource.resource_type} have no settings here"
                settle(index, _error(resource, ErrorCode.INVALID_REQUEST, text))

    def _describe_topic(
        self,
        request: DescribeConfigsRequest,
        resource: _Resource,
        done: Callable[[_Result], None],
        longest: int | None,
    ) -> None:
        """`longest`: the most bytes of a setting's value in this version; None: no limit."""
        topic = resource.resource_name
        if topic not in self.metadata:
            text = f"topic '{topic}' does not exist"
            done(_error(resource, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
            return

        def on_read(overrides: Mapping[str, str] | None) -> None:
            if overrides is None:
                done(_error(resource, ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not answer"))
                return
            own = possible_overrides(topic, overrides)
            entries = []
            for name, setting in BY_TOPIC_KEY.items():
                chain = self._broker_chain(setting) if setting.for_brokers else _default(setting)
                if name in own:
                    is_told = longest is None or len(own[name].encode()) <= longest
                    value = own[name] if is_told else None
                    chain.insert(0, _Synonym(name, value, ConfigSource.TOPIC))
                if not chain:
                    # The schema of an untyped topic: clients compare the settings of topics.
                    continue
                entries.append(_entry(request, name, setting, chain, read_only=False))
            done(_described(resource, entries))

        self.config_store.read(ConfigEntity.topic(topic), on_read)

    def _describe_group(
        self,
        request: DescribeConfigsRequest,
        resource: _Resource,
        done: Callable[[_Result], None],
    ) -> None:
        """Describe the settings of a group, whether or not there is such a group now."""
        try:
            entity = ConfigEntity.of_resource(GROUP_RESOURCE, resource.resource_name)
        except KafkaError as failure:
            done(_error(resource, failure.code, str(failure)))
            return

        def on_read(stored: Mapping[str, str] | None) -> None:
            if stored is None:
                done(_error(resource, ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not answer"))
                return
            own = possible_of_group(entity.name, stored)
            entries = []
            for name, setting in GROUP_SETTINGS.items():
                chain = self._broker_chain(setting)
                if name in own:
                    chain.insert(0, _Synonym(name, str(own[name]), ConfigSource.GROUP))
                entries.append(_entry(request, name, setting, chain, read_only=False))
            done(_described(resource, entries))

        self.config_store.read(entity, on_read)

    def _describe_broker(self, request: DescribeConfigsRequest, resource: _Resource) -> _Result:
        if not resource.resource_name:
            return _described(resource, self._all_brokers(request))
        if resource.resource_name != str(self.broker_id):
            return self._other_broker(resource)
        entries = [
            _entry(
                request,
                name,
                setting,
                self._broker_chain(setting),
                read_only=not setting.changes_live,
            )
            for name, setting in BY_BROKER_KEY.items()
        ]
        entries += [self._of_listener(request, name) for name in self.config.listener_keys()]
        return _described(resource, entries)

    def _describe_loggers(self, resource: _Resource) -> _Result:
        if resource.resource_name != str(self.broker_id):
            return self._other_broker(resource)
        entries = [
            _Entry(
                name=name,
                value=level,
                read_only=False,
                config_source=int(ConfigSource.LOGGER),
                is_sensitive=False,
                synonyms=[],
                config_type=SettingType.STRING.value,
                documentation=None,
            )
            for name, level in broker_loggers.levels()
        ]
        return _described(resource, entries)

    def _other_broker(self, resource: _Resource) -> _Result:
        text = (
            f"broker {self.broker_id} can't describe the settings of broker "
            f"'{resource.resource_name}': send the request to that broker"
        )
        return _error(resource, ErrorCode.INVALID_REQUEST, text)

    def _of_listener(self, request: DescribeConfigsRequest, name: str) -> _Entry:
        """Describe a setting that a listener has of its own."""
        setting = ListenerKey.parse(name).setting
        chain = [
            _Synonym(name, setting.format(value), source)
            for value, source in self.config.chain(name)
        ]
        return _entry(request, name, setting, chain, read_only=not setting.live_per_listener)

    def _all_brokers(self, request: DescribeConfigsRequest) -> list[_Entry]:
        """The settings for all brokers; each broker may override them."""
        source = ConfigSource.ALL_BROKERS
        return [
            _entry(
                request,
                name,
                BY_BROKER_KEY[name],
                [_Synonym(name, BY_BROKER_KEY[name].format(value), source)],
                read_only=False,
            )
            for name, value in sorted(self.config.layer(source).items())
        ]

    def _broker_chain(self, setting: Setting) -> list[_Synonym]:
        """The values of the setting on this broker; the first is in effect."""
        key = setting.broker_key
        return [
            _Synonym(key, setting.format(value), source) for value, source in self.config.chain(key)
        ]


def _default(setting: Setting) -> list[_Synonym]:
    """The default for topics that don't set it; some settings have none."""
    if setting.default is None:
        return []
    return [_Synonym(setting.name, setting.format(setting.default), ConfigSource.DEFAULT)]


def _entry(
    request: DescribeConfigsRequest,
    name: str,
    setting: Setting,
    chain: list[_Synonym],
    *,
    read_only: bool,
) -> _Entry:
    synonyms = chain if request.include_synonyms else []
    return _Entry(
        name=name,
        value=chain[0].value,
        read_only=read_only,
        config_source=int(chain[0].source),
        is_sensitive=setting.type is SettingType.PASSWORD,
        synonyms=[
            _Entry.DescribeConfigsSynonym(name=s.name, value=s.value, source=int(s.source))
            for s in synonyms
        ],
        config_type=setting.type.value,
        documentation=setting.doc if request.include_documentation else None,
    )


def _described(resource: _Resource, entries: list[_Entry]) -> _Result:
    if resource.configuration_keys:
        wanted = set(resource.configuration_keys)
        entries = [entry for entry in entries if entry.name in wanted]
    return _Result(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=entries,
    )


def _error(resource: _Resource, code: ErrorCode, text: str) -> _Result:
    return _Result(
        error_code=int(code),
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


CLIENT_METRICS_RESOURCE = 16
"""Settings of client metrics do not exist here: none are listed."""

KNOWN = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
)

FIRST_WITH_TYPES = 1


def list_config_resources(
    metadata: MetadataCache,
    groups: Callable[[], Sequence[str]],
    call: ApiCall[ListConfigResourcesResponse],
    request: ListConfigResourcesRequest,
) -> Steps:
    """`groups`: returns the groups with settings of their own."""
    if call.version >= FIRST_WITH_TYPES:
        wanted = set(request.resource_types) or set(KNOWN)
    else:
        wanted = {CLIENT_METRICS_RESOURCE}
    if not wanted <= set(KNOWN):
        code = int(ErrorCode.UNSUPPORTED_VERSION)
        call.respond(ListConfigResourcesResponse(error_code=code, config_resources=[]))
        return
    brokers = [str(broker_id) for broker_id in sorted(metadata.brokers)]
    names: dict[int, Iterable[str]] = {
        TOPIC_RESOURCE: sorted(metadata.topics()) if TOPIC_RESOURCE in wanted else (),
        BROKER_RESOURCE: brokers,
        BROKER_LOGGER_RESOURCE: brokers,
        GROUP_RESOURCE: groups() if GROUP_RESOURCE in wanted else (),
    }
    rows = []
    for kind in sorted(wanted):
        for name in names.get(kind, ()):
            rows.append(
                ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            )
            yield None
    call.respond(ListConfigResourcesResponse(error_code=0, config_resources=rows))


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
                settle(_schema_error(name, ErrorCode.INVALID_REQUEST, text))
            else:
                self._describe(name, settle)

    def _describe(self, topic: str, settle: Callable[[DescribedSchema], None]) -> None:
        topic_id = self.metadata.topic_id(topic)
        own = self.topics.overrides(topic)
        if topic_id is None:
            text = f"topic '{topic}' does not exist"
            settle(_schema_error(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
        elif (unreadable := self.topics.unreadable_schema(topic)) is not None:
            settle(_unreadable(topic, unreadable))
        elif own is not None:
            settle(_described_schema(topic, topic_id, own))
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
                once(_described_schema(topic, topic_id, settings))

        timer = self.scheduler.call_later(READ_MS, lambda: once(_unanswered(topic)))
        self.config_store.read(ConfigEntity.topic(topic), on_read)


def _described_schema(topic: str, topic_id: UUID, settings: Mapping[str, str]) -> DescribedSchema:
    return DescribedSchema(topic=topic, topic_id=topic_id, schema=settings.get(SCHEMA_SETTING))


def _unreadable(topic: str, schema: UnreadableSchema) -> DescribedSchema:
    text = f"its schema can't be read on this broker: {schema.reason}"
    return _schema_error(topic, ErrorCode.UNKNOWN_SCHEMA_VERSION, text)


def _unanswered(topic: str) -> DescribedSchema:
    text = f"ZooKeeper did not answer, and this broker has no replica of '{topic}': ask its leader"
    return _schema_error(topic, ErrorCode.LEADER_NOT_AVAILABLE, text)


def _schema_error(topic: str, code: ErrorCode, text: str) -> DescribedSchema:
    return DescribedSchema(topic=topic, error_code=int(code), error_message=text)
