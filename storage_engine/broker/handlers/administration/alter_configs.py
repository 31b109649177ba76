"""IncrementalAlterConfigs and AlterConfigs: settings of topics and brokers, served by any broker.

Rule: each topic or broker succeeds or fails by itself, and wholly; who is answered can be sure that
ZooKeeper has the settings, that this broker works by them, and that the others hear of them.
Source: R-TOOL1, KIP-339, KIP-226.
"""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.config_alteration import (
    BrokerRules,
    Change,
    Rules,
    TopicRules,
    altered,
    replaced,
)
from storage_engine.broker.settings.config_entity import ConfigEntity, EntityKind
from storage_engine.broker.settings.config_store import Compute
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.protocol.apis.alter_configs import AlterConfigsResponse
from storage_engine.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsResponse

Outcome = KafkaError | None

CONFIGS_MAX = 1000
"""Of one resource: many times the settings there are."""


def incremental_alter_configs(context: BrokerContext, call: Call, request: Any) -> Steps:
    def compute(resource: Any, rules: Rules) -> Compute:
        changes = [Change(c.name, c.config_operation, c.value) for c in resource.configs]
        return lambda current: altered(current, changes, rules)

    def respond(resources: Sequence[Any], outcomes: Sequence[Outcome]) -> Steps:
        row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        rows = yield from _rows(row, resources, outcomes)
        call.respond(IncrementalAlterConfigsResponse(responses=rows))

    return _alter(context, call, request, compute, respond)


def alter_configs(context: BrokerContext, call: Call, request: Any) -> Steps:
    def compute(resource: Any, rules: Rules) -> Compute:
        values = [(c.name, c.value) for c in resource.configs]
        return lambda _current: replaced(values, rules)

    def respond(resources: Sequence[Any], outcomes: Sequence[Outcome]) -> Steps:
        row = AlterConfigsResponse.AlterConfigsResourceResponse
        rows = yield from _rows(row, resources, outcomes)
        call.respond(AlterConfigsResponse(responses=rows))

    return _alter(context, call, request, compute, respond)


def _alter(
    context: BrokerContext,
    call: Call,
    request: Any,
    compute: Callable[[Any, Rules], Compute],
    respond: Callable[[Sequence[Any], Sequence[Outcome]], Steps],
) -> Steps:
    resources = list(request.resources)
    outcomes: dict[int, Outcome] = {}

    def settle(index: int, outcome: Outcome) -> None:
        outcomes[index] = outcome
        if len(outcomes) == len(resources):
            call.run(respond(resources, [outcomes[i] for i in range(len(resources))]))

    if not resources:
        yield from respond([], [])
    keys = [(resource.resource_type, resource.resource_name) for resource in resources]
    named = Counter(keys)
    for index, resource in enumerate(resources):
        yield None
        try:
            if len(resource.configs) > CONFIGS_MAX:
                raise KafkaError(
                    f"{len(resource.configs)} settings of '{resource.resource_name}' are more "
                    f"than the {CONFIGS_MAX} possible at once",
                    ErrorCode.INVALID_REQUEST,
                )
            if named[keys[index]] > 1:
                raise KafkaError(
                    f"'{resource.resource_name}' is named twice", ErrorCode.INVALID_REQUEST
                )
            entity = ConfigEntity.of_resource(*keys[index])
            rules = _rules(context, entity)
        except KafkaError as failure:
            settle(index, failure.as_outcome())
            continue
        _change(
            context,
            entity,
            compute(resource, rules),
            lambda outcome, index=index: settle(index, outcome),  # type: ignore[misc]
            validate_only=request.validate_only,
        )


def _rules(context: BrokerContext, entity: ConfigEntity) -> Rules:
    if entity.kind is EntityKind.TOPIC:
        return TopicRules(context.config)
    if entity == ConfigEntity.all_brokers():
        return BrokerRules(context.config, ConfigSource.ALL_BROKERS, is_own=True)
    broker_id = BrokerId(int(entity.name))
    if broker_id != context.broker_id and broker_id not in context.metadata.brokers:
        raise KafkaError(
            f"there is no live broker {broker_id}; alive are {sorted(context.metadata.brokers)}",
            ErrorCode.INVALID_REQUEST,
        )
    is_own = broker_id == context.broker_id
    return BrokerRules(context.config, ConfigSource.BROKER, is_own=is_own)


def _change(
    context: BrokerContext,
    entity: ConfigEntity,
    compute: Compute,
    done: Callable[[Outcome], None],
    *,
    validate_only: bool,
) -> None:
    def on_outcome(failure: Outcome) -> None:
        if failure is not None or validate_only:
            done(failure)
        else:
            # So that whoever asks this broker next gets what he has set.
            context.config_changes.refresh(entity, lambda: done(None))

    context.config_store.change(entity, compute, on_outcome, validate_only=validate_only)


def _rows(
    row: Any, resources: Sequence[Any], outcomes: Sequence[Outcome]
) -> Generator[None, Any, list[Any]]:
    rows = []
    for resource, outcome in zip(resources, outcomes, strict=True):
        told = row(
            error_code=0 if outcome is None else int(outcome.code),
            error_message=None if outcome is None else str(outcome),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        rows.append(told)
        yield None
    return rows
