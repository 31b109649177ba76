"""Schemas are parsed, looked up, compared and registered."""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace_registry.log.follower import Follower
from headrace_registry.writes import Writes
from storage_engine.core.schemas.languages import (
    InvalidSchemaError,
    ParsedSchema,
    Schema,
    SchemaType,
    parse,
)
from storage_engine.core.schemas.registry.changes import (
    Candidate,
    PlannedChange,
    check_may_register,
    register,
    registered,
)
from storage_engine.core.schemas.registry.compatibility import compared_with, reasons_against
from storage_engine.core.schemas.registry.records import Json, Level, StoredSchema
from storage_engine.core.schemas.registry.references import pinned, resolved
from storage_engine.core.schemas.registry.registry_error import (
    INCOMPATIBLE,
    STORE_FAILED,
    RegistryError,
    invalid_schema,
)
from storage_engine.core.schemas.registry.state import RegistryState, sameness
from storage_engine.schema_tools.protoc import compile_proto

_Parsed = tuple[Schema, frozenset[tuple[str, Schema]], bool]
"""A schema, those that it refers to, and whether it is new."""

_MOST_COMPILERS = 2
"""Child processes that compile Protobuf; each may take a GiB."""
_MOST_PARSED = 1_000
_MOST_PARSED_CHARACTERS = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSchema:
    """A schema in a request."""

    schema: Schema
    metadata: Json = None
    rule_set: Json = None
    schema_id: int | None = None
    version: int | None = None


class SchemaCalls:
    """For any number of threads."""

    def __init__(
        self,
        follower: Follower,
        writes: Writes,
        misfit: Callable[[str, ParsedSchema], str | None] = lambda subject, parsed: None,
    ) -> None:
        """`misfit`: why records of a schema under a subject would be refused by its topic."""
        self._misfit = misfit
        self._follower = follower
        self._writes = writes
        self._lock = threading.Lock()
        self._parsed: OrderedDict[_Parsed, ParsedSchema] = OrderedDict()
        self._characters = 0
        self._compilers = threading.BoundedSemaphore(_MOST_COMPILERS)

    def parsed(self, schema: Schema, *, new: bool = False) -> ParsedSchema:
        """RegistryError for an invalid one, or one that refers to what is not there. `new`: it is
        not registered yet, so nothing is forgiven."""
        known = self._follower.look(lambda state: resolved(schema, state))
        key = schema, frozenset(known.items()), new
        with self._lock:
            found = self._parsed.get(key)
            if found is not None:
                self._parsed.move_to_end(key)
                return found
        found = self._read(schema, known, new=new)
        with self._lock:
            if key not in self._parsed:
                self._parsed[key] = found
                self._characters += len(schema.text)
            while self._parsed and (
                len(self._parsed) > _MOST_PARSED or self._characters > _MOST_PARSED_CHARACTERS
            ):
                self._characters -= len(self._parsed.popitem(last=False)[0][0].text)
        return found

    def _read(self, schema: Schema, known: dict[str, Schema], *, new: bool) -> ParsedSchema:
        is_compiled = schema.schema_type is SchemaType.PROTOBUF
        try:
            with self._compilers if is_compiled else contextlib.nullcontext():
                return parse(schema, known, new=new, compile_proto=compile_proto)
        except InvalidSchemaError as error:
            raise invalid_schema(str(error)) from None

    def serialized(self, schema: Schema) -> str | None:
        """The descriptor of a Protobuf schema in base64; None for other languages."""
        if schema.schema_type is not SchemaType.PROTOBUF:
            return None
        from storage_engine.core.schemas.protobuf.parsed import ParsedProtobuf

        parsed = self.parsed(schema)
        return parsed.serialized if isinstance(parsed, ParsedProtobuf) else None

    def candidate(self, subject: str, given: GivenSchema, *, normalize: bool) -> Candidate:
        """The schema as it would be registered."""
        schema = self._follower.look(lambda state: pinned(given.schema, state))
        parsed = self.parsed(schema, new=True)
        normalize = normalize or self._follower.look(lambda state: state.normalizes(subject))
        text = parsed.normalized if normalize else parsed.canonical
        return Candidate(
            subject=subject,
            schema=Schema(schema.schema_type, text, schema.references),
            parsed=parsed,
            metadata=given.metadata,
            rule_set=given.rule_set,
            schema_id=given.schema_id,
            version=given.version,
        )

    def lookup(
        self, candidate: Candidate, *, normalize: bool, with_deleted: bool
    ) -> StoredSchema | None:
        """The newest version of the subject that is the same schema."""
        versions = self._follower.look(
            lambda state: state.versions(candidate.subject, with_deleted=with_deleted)
        )
        same = sameness(candidate.schema, candidate.metadata, candidate.rule_set)
        for stored in reversed(versions):
            if sameness(stored.schema, stored.metadata, stored.rule_set) == same:
                return stored
        # Another registry may have stored texts in another form.
        for stored in reversed(versions):
            if (
                stored.schema.schema_type is candidate.schema.schema_type
                and set(stored.schema.references) == set(candidate.schema.references)
                and (candidate.metadata or stored.metadata) == stored.metadata
                and (candidate.rule_set or stored.rule_set) == stored.rule_set
                and self._is_same(stored, candidate, normalize=normalize)
            ):
                return stored
        return None

    def _is_same(self, stored: StoredSchema, candidate: Candidate, *, normalize: bool) -> bool:
        try:
            known = self.parsed(stored.schema)
        except RegistryError:
            return False
        if normalize:
            return known.normalized == candidate.parsed.normalized
        return known.canonical == candidate.parsed.canonical

    def reasons(
        self,
        candidate: Candidate,
        choose: Callable[[RegistryState, Level], Sequence[StoredSchema]] | None = None,
        *,
        is_of_topic: bool = False,
    ) -> list[str]:
        """Why it is not compatible with the versions that `choose` names: by default those that
        the subject's level wants, and, whatever the level, the columns of a typed topic, unless the
        schema is a version of the topic's own."""

        def compared(state: RegistryState) -> tuple[Level, Sequence[StoredSchema]]:
            level = state.level(candidate.subject)
            if choose is not None:
                return level, choose(state, level)
            return level, compared_with(
                level,
                state.versions(candidate.subject),
                state.compatibility_group(candidate.subject),
                candidate.metadata,
            )

        if choose is None and not is_of_topic:
            misfit = self._misfit(candidate.subject, candidate.parsed)
            if misfit is not None:
                return [misfit]
        level, versions = self._follower.look(compared)
        return reasons_against(level, candidate.schema, candidate.parsed, versions, self.parsed)

    def register(
        self, subject: str, given: GivenSchema, *, normalize: bool, is_of_topic: bool = False
    ) -> Json:
        """The id. RegistryError for a schema that is invalid, incompatible, or not permitted."""
        # Parsed before its turn, which costs others no time.
        self.candidate(subject, given, normalize=normalize)
        with self._writes.turn():
            candidate = self.candidate(subject, given, normalize=normalize)
            known = self._follower.look(lambda state: registered(state, candidate))
            if known is None and given.schema_id is None and given.version is None:
                known = self.lookup(candidate, normalize=normalize, with_deleted=False)
            if known is not None:
                return known.id
            self._follower.look(lambda state: check_may_register(state, candidate))
            if given.schema_id is None:
                reasons = self.reasons(candidate, is_of_topic=is_of_topic)
                if reasons:
                    raise RegistryError(
                        INCOMPATIBLE,
                        "Schema being registered is incompatible with an earlier schema for "
                        f'subject "{subject}", details: [{", ".join(reasons)}]',
                    )

            def plan(state: RegistryState) -> PlannedChange:
                return register(state, candidate)

            answer = self._writes.change(plan)
            if not self._follower.look(lambda state: _has(state, candidate, answer)):
                raise RegistryError(
                    STORE_FAILED,
                    f"another registry has given the id {answer} meanwhile, which is not one of "
                    "this group; try again",
                )
            return answer


def _has(state: RegistryState, candidate: Candidate, schema_id: Json) -> bool:
    versions = state.versions(candidate.subject)
    return any(each.id == schema_id and each.schema == candidate.schema for each in versions)
