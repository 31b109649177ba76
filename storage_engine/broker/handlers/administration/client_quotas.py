"""DescribeClientQuotas and AlterClientQuotas, served by any broker.

The quotas described are those that this broker applies. A change is answered when ZooKeeper has it
and this broker applies it; the other brokers apply it soon after. Source: KIP-546.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.quotas.client_usage import ClientUsage
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.config_changes import ConfigChanges
from storage_engine.broker.settings.config_store import Compute, ConfigEntity, ConfigStore
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.quotas import QuotaEntity, QuotaFilter, QuotaKey, checked, setting_of
from storage_engine.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from storage_engine.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

Outcome = KafkaError | None

_Entry = AlterClientQuotasRequest.EntryData

OPS_MAX = 2 * len(QuotaKey)
"""The most changes of one entity in a request: each quota once, and some to spare."""

PARTS_MAX = 3
"""The number of types of parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotasHandlers:
    """Answers DescribeClientQuotas and AlterClientQuotas."""

    usage: ClientUsage
    config_store: ConfigStore
    config_changes: ConfigChanges

    def describe(
        self, call: ApiCall[DescribeClientQuotasResponse], request: DescribeClientQuotasRequest
    ) -> Steps:
        try:
            wanted = QuotaFilter.of_request(
                (
                    (c.entity_type, c.match_type, c.match)
                    for c in request.components[: PARTS_MAX + 1]
                ),
                is_strict=request.strict,
            )
        except KafkaError as failure:
            refused = DescribeClientQuotasResponse(
                error_code=int(failure.code), error_message=str(failure), entries=None
            )
            call.respond(refused)
            return
        entries = []
        # A copy: between two steps others may change them.
        for entity, quotas in sorted(self.usage.quotas.all.items(), key=_in_order):
            yield None
            if wanted.matches(entity):
                entries.append(_described(entity, quotas))
        call.respond(DescribeClientQuotasResponse(entries=entries))

    def alter(
        self, call: ApiCall[AlterClientQuotasResponse], request: AlterClientQuotasRequest
    ) -> Steps:
        entries = list(request.entries)
        outcomes: dict[int, Outcome] = {}

        def settle(index: int, outcome: Outcome) -> None:
            outcomes[index] = outcome
            if len(outcomes) == len(entries):
                call.run(_respond(call, entries, [outcomes[i] for i in range(len(entries))]))

        if not entries:
            yield from _respond(call, [], [])
        named: Counter[frozenset[tuple[str, str | None]]] = Counter()
        for entry in entries:
            yield None
            named[_name(entry)] += 1
        for index, entry in enumerate(entries):
            yield None
            try:
                if named[_name(entry)] > 1:
                    raise KafkaError("the entity is named twice", ErrorCode.INVALID_REQUEST)
                who = QuotaEntity.of_request(
                    (part.entity_type, part.entity_name) for part in entry.entity[: PARTS_MAX + 1]
                )
                compute = _changes(call, who, entry.ops)
            except KafkaError as failure:
                settle(index, failure.as_outcome())
                continue
            self._change(
                ConfigEntity.of_quota(who),
                compute,
                partial(settle, index),
                validate_only=request.validate_only,
            )

    def _change(
        self,
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
                self.config_changes.refresh(entity, lambda: done(None))

        self.config_store.change(entity, compute, on_outcome, validate_only=validate_only)


def _name(entry: _Entry) -> frozenset[tuple[str, str | None]]:
    # An entity with more parts is refused.
    parts = entry.entity[: PARTS_MAX + 1]
    return frozenset((part.entity_type, part.entity_name) for part in parts)


def _changes(
    call: ApiCall[AlterClientQuotasResponse], who: QuotaEntity, ops: Sequence[_Entry.OpData]
) -> Compute:
    """Return the function that changes an entity's quotas and keeps its other settings. Raises
    KafkaError."""
    if len(ops) > OPS_MAX:
        raise KafkaError(
            f"{len(ops)} changes of {who} are more than there are quotas", ErrorCode.INVALID_REQUEST
        )
    changes: dict[str, str | None] = {}
    for op in ops:
        # A quota that is removed needs no valid value.
        key = checked(who, op.key, 1.0 if op.remove else op.value)
        if key.value in changes:
            raise KafkaError(f"'{op.key}' stands twice", ErrorCode.INVALID_REQUEST)
        changes[key.value] = None if op.remove else setting_of(key, op.value)

    def compute(present: Mapping[str, str]) -> dict[str, str]:
        # After the read of the settings the client may have lost the right to change them.
        call.check_allowed()
        merged = {**present, **changes}
        return {name: value for name, value in merged.items() if value is not None}

    return compute


def _respond(
    call: ApiCall[AlterClientQuotasResponse], entries: Sequence[_Entry], outcomes: Sequence[Outcome]
) -> Steps:
    row = AlterClientQuotasResponse.EntryData
    rows = []
    for entry, outcome in zip(entries, outcomes, strict=True):
        entity = []
        for part in entry.entity:
            yield None
            entity.append(
                row.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            )
        yield None
        rows.append(
            row(
                error_code=0 if outcome is None else int(outcome.code),
                error_message=None if outcome is None else str(outcome),
                entity=entity,
            )
        )
    call.respond(AlterClientQuotasResponse(entries=rows))


def _in_order(item: tuple[QuotaEntity, Mapping[QuotaKey, float]]) -> list[tuple[str, str]]:
    return [(kind, name or "") for kind, name in item[0].parts]


def _described(
    entity: QuotaEntity, quotas: Mapping[QuotaKey, float]
) -> DescribeClientQuotasResponse.EntryData:
    row = DescribeClientQuotasResponse.EntryData
    return row(
        entity=[row.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
        values=[
            row.ValueData(key=key.value, value=value)
            for key, value in sorted(quotas.items(), key=lambda item: item[0].value)
        ],
    )
