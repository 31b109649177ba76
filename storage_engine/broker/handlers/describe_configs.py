"""DescribeConfigs: the settings of topics and brokers, with where each value comes from and what it
means.

Rule: settings of topics are read from ZooKeeper at each request, so that any broker gives the same
answer. Source: R-TOOL1, KIP-226 (sources and synonyms).
"""

from collections.abc import Mapping
from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode
from storage_engine.core.setting import Setting
from storage_engine.core.settings import BY_BROKER_KEY, BY_TOPIC_KEY
from storage_engine.protocol.apis.describe_configs import DescribeConfigsResponse

TOPIC = 2
BROKER = 4

SOURCE_TOPIC = 1
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = _Result.DescribeConfigsResourceResult


def handle(context: BrokerContext, call: Call, request: Any) -> None:
    results: list[Any] = [None] * len(request.resources)
    open_count = len(results)

    def settle(index: int, result: Any) -> None:
        nonlocal open_count
        results[index] = result
        open_count -= 1
        if open_count == 0:
            call.respond(DescribeConfigsResponse(results=results))

    if not results:
        call.respond(DescribeConfigsResponse(results=[]))
    for index, resource in enumerate(request.resources):
        if resource.resource_type == TOPIC:
            _describe_topic(
                context, request, resource, lambda result, index=index: settle(index, result)
            )
        elif resource.resource_type == BROKER:
            settle(index, _describe_broker(context, request, resource))
        else:
            text = f"resources of type {resource.resource_type} have no settings here"
            settle(index, _error(resource, ErrorCode.INVALID_REQUEST, text))


def _describe_topic(context: BrokerContext, request: Any, resource: Any, done: Any) -> None:
    topic = resource.resource_name
    if topic not in context.metadata:
        text = f"topic '{topic}' does not exist"
        done(_error(resource, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
        return

    def on_read(overrides: Mapping[str, str] | None) -> None:
        if overrides is None:
            done(_error(resource, ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not answer"))
            return
        entries = []
        for name, setting in BY_TOPIC_KEY.items():
            value, source = _broker_value(context, setting)
            if name in overrides:
                value, source = overrides[name], SOURCE_TOPIC
            entries.append(_entry(request, name, setting, value, source, read_only=False))
        done(_described(resource, entries))

    context.topic_configs.read(topic, on_read)


def _describe_broker(context: BrokerContext, request: Any, resource: Any) -> Any:
    if resource.resource_name != str(context.broker_id):
        text = (
            f"broker {context.broker_id} can't tell the settings of broker "
            f"'{resource.resource_name}': ask that one"
        )
        return _error(resource, ErrorCode.INVALID_REQUEST, text)
    entries = []
    for name, setting in BY_BROKER_KEY.items():
        value, source = _broker_value(context, setting)
        entries.append(_entry(request, name, setting, value, source, read_only=True))
    return _described(resource, entries)


def _broker_value(context: BrokerContext, setting: Setting) -> tuple[str | None, int]:
    key = setting.broker_key
    source = SOURCE_STATIC_BROKER if context.config.is_given(key) else SOURCE_DEFAULT
    return setting.format(context.config.get(key)), source


def _entry(
    request: Any,
    name: str,
    setting: Setting,
    value: str | None,
    source: int,
    *,
    read_only: bool,
) -> Any:
    return _Entry(
        name=name,
        value=value,
        read_only=read_only,
        config_source=source,
        is_sensitive=False,
        synonyms=_synonyms(setting, value, source) if request.include_synonyms else [],
        config_type=setting.type.value,
        documentation=setting.doc if request.include_documentation else None,
    )


def _synonyms(setting: Setting, value: str | None, source: int) -> list[Any]:
    """The chain of values, the one that counts first."""
    chain = []
    if source != SOURCE_DEFAULT:
        own_name = setting.name if source == SOURCE_TOPIC else setting.broker_key
        chain.append(_Entry.DescribeConfigsSynonym(name=own_name, value=value, source=source))
    chain.append(
        _Entry.DescribeConfigsSynonym(
            name=setting.broker_key, value=setting.format(setting.default), source=SOURCE_DEFAULT
        )
    )
    return chain


def _described(resource: Any, entries: list[Any]) -> Any:
    wanted = resource.configuration_keys
    if wanted:
        entries = [entry for entry in entries if entry.name in set(wanted)]
    return _Result(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=entries,
    )


def _error(resource: Any, code: ErrorCode, text: str) -> Any:
    return _Result(
        error_code=int(code),
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
