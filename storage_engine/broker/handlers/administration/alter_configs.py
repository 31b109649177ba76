"""IncrementalAlterConfigs and AlterConfigs: settings of topics, groups and brokers, served by any
broker.

The settings of each topic, group or broker are changed all or not at all, whether or not those of
others succeed. When the answer is sent, ZooKeeper has the settings and this broker applies them;
the other brokers read them soon after. Source: R-TOOL1, KIP-339, KIP-226.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.administration import broker_loggers
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.config import log_without_effect
from storage_engine.broker.settings.config_alteration import (
    BrokerRules,
    Change,
    Rules,
    TopicRules,
    altered,
    replaced,
)
from storage_engine.broker.settings.config_changes import ConfigChanges
from storage_engine.broker.settings.config_store import (
    BROKER_LOGGER_RESOURCE,
    Compute,
    ConfigEntity,
    ConfigStore,
    EntityKind,
)
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.group_config import NOT_ENABLED, GroupRules
from storage_engine.broker.settings.listener_map import is_listener_key
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId
from storage_engine.core.security.acl_rules import CLUSTER_NAME, ResourceType
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.core.settings.settings import BY_TOPIC_KEY
from storage_engine.protocol.apis.spec import Resp
from storage_engine.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from storage_engine.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Outcome = KafkaError | None

CONFIGS_MAX = 1000
"""The most settings of one resource in a request, many times the number of settings that exist."""

_Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
_Replaced = AlterConfigsRequest.AlterConfigsResource
Resource = TypeVar("Resource", _Changed, _Replaced)
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsHandlers:
    """Answers IncrementalAlterConfigs and AlterConfigs."""

    broker_id: BrokerId
    config: DynamicConfig
    config_store: ConfigStore
    config_changes: ConfigChanges
    metadata: MetadataCache
    has_consumer_groups: Callable[[], bool]
    """Returns whether the cluster has consumer groups by now: others have no settings."""

    def handle_incremental(
        self,
        call: ApiCall[IncrementalAlterConfigsResponse],
        request: IncrementalAlterConfigsRequest,
    ) -> Steps:
        def compute(resource: _Changed, rules: Rules) -> Compute:
            changes = [Change(c.name, c.config_operation, c.value) for c in resource.configs]
            return lambda current: altered(current, changes, rules)

        def respond(outcomes: Sequence[Outcome]) -> Steps:
            row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
            rows = yield from _rows(row, request.resources, outcomes)
            call.respond(IncrementalAlterConfigsResponse(responses=rows))

        return self._alter(call, request.resources, compute, respond, request.validate_only)

    def handle(self, call: ApiCall[AlterConfigsResponse], request: AlterConfigsRequest) -> Steps:
        def compute(resource: _Replaced, rules: Rules) -> Compute:
            values = [(c.name, c.value) for c in resource.configs]
            return lambda current: replaced(current, values, rules)

        def respond(outcomes: Sequence[Outcome]) -> Steps:
            row = AlterConfigsResponse.AlterConfigsResourceResponse
            rows = yield from _rows(row, request.resources, outcomes)
            call.respond(AlterConfigsResponse(responses=rows))

        return self._alter(call, request.resources, compute, respond, request.validate_only)

    def _alter(
        self,
        call: ApiCall[Resp],
        resources: Sequence[Resource],
        compute: Callable[[Resource, Rules], Compute],
        respond: Callable[[Sequence[Outcome]], Steps],
        validate_only: bool,
    ) -> Steps:
        outcomes: dict[int, Outcome] = {}

        def settle(index: int, outcome: Outcome) -> None:
            outcomes[index] = outcome
            if len(outcomes) == len(resources):
                call.run(respond([outcomes[i] for i in range(len(resources))]))

        if not resources:
            yield from respond([])
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
                is_logger = resource.resource_type == BROKER_LOGGER_RESOURCE
                if is_logger and isinstance(resource, _Changed):
                    self._change_loggers(call, resource, validate_only=validate_only)
                    settle(index, None)
                    continue
                entity = ConfigEntity.of_resource(*keys[index])
                rules = self._rules(entity)
            except KafkaError as failure:
                settle(index, failure.as_outcome())
                continue
            self._change(
                entity,
                _while_allowed(call, entity, compute(resource, rules)),
                partial(settle, index),
                [config.name for config in resource.configs],
                validate_only=validate_only,
                # A key store or trust store, which is read again when its path is set again.
                is_told_anyway=any(is_listener_key(config.name) for config in resource.configs),
            )

    def _change_loggers(
        self, call: ApiCall[Resp], resource: _Changed, *, validate_only: bool
    ) -> None:
        """Change all of the loggers or none. Raises KafkaError."""
        if resource.resource_name != str(self.broker_id):
            raise KafkaError(
                f"broker {self.broker_id} can't alter the loggers of broker "
                f"'{resource.resource_name}': send the request to that broker",
                ErrorCode.INVALID_REQUEST,
            )
        call.check_allowed(ResourceType.CLUSTER, CLUSTER_NAME)
        changes = [(c.name, c.config_operation, c.value) for c in resource.configs]
        for each in changes:
            broker_loggers.check_change(*each)
        if not validate_only:
            for each in changes:
                broker_loggers.change(*each)

    def _rules(self, entity: ConfigEntity) -> Rules:
        if entity.kind is EntityKind.TOPIC:
            return TopicRules(self.config)
        if entity.kind is EntityKind.GROUP:
            if not self.has_consumer_groups():
                raise KafkaError(NOT_ENABLED, ErrorCode.UNSUPPORTED_VERSION)
            return GroupRules(self.config)
        if entity == ConfigEntity.all_brokers():
            return BrokerRules(self.config, ConfigSource.ALL_BROKERS, is_own=True)
        broker_id = BrokerId(int(entity.name))
        if broker_id != self.broker_id and broker_id not in self.metadata.brokers:
            raise KafkaError(
                f"there is no live broker {broker_id}; alive are {sorted(self.metadata.brokers)}",
                ErrorCode.INVALID_REQUEST,
            )
        is_own = broker_id == self.broker_id
        return BrokerRules(self.config, ConfigSource.BROKER, is_own=is_own)

    def _change(
        self,
        entity: ConfigEntity,
        compute: Compute,
        done: Callable[[Outcome], None],
        names: Sequence[str],
        *,
        validate_only: bool,
        is_told_anyway: bool,
    ) -> None:
        def on_outcome(failure: Outcome) -> None:
            if failure is not None or validate_only:
                done(failure)
            else:
                if entity.kind is EntityKind.TOPIC:
                    log_without_effect(names, BY_TOPIC_KEY, where=str(entity))
                # So that the next request to this broker gets the new settings.
                self.config_changes.refresh(entity, lambda: done(None))

        self.config_store.change(
            entity,
            compute,
            on_outcome,
            validate_only=validate_only,
            is_told_anyway=is_told_anyway,
        )


def _while_allowed(call: ApiCall[Resp], entity: ConfigEntity, compute: Compute) -> Compute:
    """Check the rights again when the settings are computed: by then, after a read, the client may
    have lost them."""

    def computed(present: Mapping[str, str]) -> dict[str, str]:
        if entity.kind is EntityKind.TOPIC:
            call.check_allowed(ResourceType.TOPIC, entity.name)
        elif entity.kind is EntityKind.GROUP:
            call.check_allowed(ResourceType.GROUP, entity.name)
        else:
            call.check_allowed(ResourceType.CLUSTER, CLUSTER_NAME)
        return compute(present)

    return computed


def _rows(
    row: Callable[..., Row], resources: Sequence[Resource], outcomes: Sequence[Outcome]
) -> Generator[None, None, list[Row]]:
    rows = []
    for resource, outcome in zip(resources, outcomes, strict=True):
        result = row(
            error_code=0 if outcome is None else int(outcome.code),
            error_message=None if outcome is None else str(outcome),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        rows.append(result)
        yield None
    return rows
