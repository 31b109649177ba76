"""The records that a change writes, and what it answers. Nothing here changes the state: the
records do, once they are read back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from storage_engine.core.schemas.languages import ParsedSchema, Schema
from storage_engine.core.schemas.registry.records import (
    MOST_ID,
    Json,
    KeyType,
    Level,
    Mode,
    Record,
    RecordKey,
    StoredSchema,
    encode_highest_id,
    encode_json,
)
from storage_engine.core.schemas.registry.registry_error import (
    STORE_FAILED,
    RegistryError,
    invalid_schema,
    invalid_subject,
    not_permitted,
    referred_to,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from storage_engine.core.schemas.registry.state import RegistryState, sameness

_READ_ONLY = (Mode.READONLY, Mode.READONLY_OVERRIDE)
LATEST = -1
MOST_SUBJECT_LENGTH = 1_000
_RESERVED = ("__GLOBAL", "__EMPTY")


class PlannedChange(NamedTuple):
    """Records to write at once, none where nothing changes; `answer` counts when they are read."""

    answer: Json
    records: Sequence[Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A schema that is to be registered."""

    subject: str
    schema: Schema
    """With its canonical text."""
    parsed: ParsedSchema
    metadata: Json = None
    rule_set: Json = None
    schema_id: int | None = None
    """The id that it must have: for the mode IMPORT."""
    version: int | None = None


def check_subject(subject: str) -> str:
    """The subject without the mark of the default context. RegistryError for a name that is not
    served."""
    name = subject.removeprefix(":.:")
    if name.startswith(":."):
        raise RegistryError(
            42208,
            f"The subject '{subject}' is in a context; this registry serves none but the default",
        )
    if (
        not name
        or name in _RESERVED
        or len(name) > MOST_SUBJECT_LENGTH
        or any(ord(sign) < 32 for sign in name)
    ):
        raise invalid_subject(subject)
    return name


# --- schemas ---


def check_may_register(state: RegistryState, candidate: Candidate) -> None:
    mode = state.mode(candidate.subject)
    _check_writable(state, candidate.subject)
    if candidate.schema_id is not None and mode is not Mode.IMPORT:
        raise not_permitted(f"Subject {candidate.subject} in context . is not in import mode")
    if candidate.schema_id is None and mode is Mode.IMPORT:
        raise not_permitted(f"Subject {candidate.subject} in context . is not in read-write mode")


def _check_writable(state: RegistryState, subject: str | None) -> None:
    if state.mode(subject) in _READ_ONLY:
        which = "The registry" if subject is None else f"Subject {subject} in context ."
        raise not_permitted(f"{which} is in read-only mode")


def registered(state: RegistryState, candidate: Candidate) -> StoredSchema | None:
    """The version under which the subject has this very schema."""
    same = sameness(candidate.schema, candidate.metadata, candidate.rule_set)
    for stored in state.versions(candidate.subject)[::-1]:
        if sameness(stored.schema, stored.metadata, stored.rule_set) == same and (
            (candidate.schema_id or stored.id, candidate.version or stored.version)
            == (stored.id, stored.version)
        ):
            return stored
    return None


def register(state: RegistryState, candidate: Candidate) -> PlannedChange:
    """The schema, which is not registered and is compatible, becomes a version of its subject: with
    the id of equal schemas, else with one that was never given."""
    check_may_register(state, candidate)
    subject = candidate.subject
    existing = state.versions(subject, with_deleted=True)
    following = existing[-1].version + 1 if existing else 1
    version = candidate.version or following
    if version != following and state.mode(subject) is not Mode.IMPORT:
        raise invalid_schema(f"its version {version} is not the next one, {following}")
    same = sameness(candidate.schema, candidate.metadata, candidate.rule_set)
    schema_id = candidate.schema_id
    if schema_id is None:
        schema_id = state.id_of(same)
    if schema_id is None:
        schema_id = state.highest_id + 1
        if schema_id > MOST_ID:
            raise RegistryError(STORE_FAILED, f"all ids up to {MOST_ID} were given")
    for other in state.with_id(schema_id):
        if (other.subject, other.version) != (subject, version) and (
            sameness(other.schema, other.metadata, other.rule_set) != same
        ):
            raise not_permitted(
                f"Overwrite new schema with id {schema_id} in context . is not permitted."
            )
    before = state.version(subject, version)
    if before is not None and not before.is_deleted and before.schema != candidate.schema:
        raise not_permitted(f"Subject {subject} has another schema as version {version}")
    stored = StoredSchema(
        subject=subject,
        version=version,
        id=schema_id,
        schema=candidate.schema,
        metadata=candidate.metadata,
        rule_set=candidate.rule_set,
        foreign={},
    )
    records: list[Record] = []
    for older in existing:
        # What was soft deleted is there again, as a later version.
        is_back = older.id == schema_id and older.is_deleted and older.version < version
        if is_back and not state.referrers(subject, older.version):
            records += _removed(state, _key(subject, older.version))
    records.append(_put(_key(subject, version), stored.encode()))
    if schema_id > state.highest_id:
        records.append(encode_highest_id(schema_id))
    return PlannedChange(schema_id, records)


def delete_version(
    state: RegistryState, subject: str, number: int, *, permanent: bool
) -> PlannedChange:
    """`number`: LATEST for the last one. The answer is the version."""
    stored = _to_delete(state, subject, number, permanent=permanent)
    _check_writable(state, subject)
    _check_unreferred(state, stored, permanent=permanent)
    key = _key(subject, stored.version)
    if not permanent:
        deleted = replace(stored, is_deleted=True)
        return PlannedChange(stored.version, [_put(key, deleted.encode())])
    records = [*_kept_highest_id(state), *_removed(state, key)]
    if len(state.versions(subject, with_deleted=True)) == 1:
        records += _without_settings(state, subject)
    return PlannedChange(stored.version, records)


def _to_delete(state: RegistryState, subject: str, number: int, *, permanent: bool) -> StoredSchema:
    every = state.versions(subject, with_deleted=True)
    if not every or (not permanent and not state.versions(subject)):
        raise subject_not_found(subject)
    if number == LATEST:
        found = state.latest(subject) or every[-1]
    else:
        version = state.version(subject, number)
        if version is None:
            raise version_not_found(number)
        found = version
    if found.is_deleted and not permanent:
        raise version_soft_deleted(subject, found.version)
    if permanent and not found.is_deleted:
        raise version_not_soft_deleted(subject, found.version)
    return found


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> PlannedChange:
    """The answer are the versions."""
    every = state.versions(subject, with_deleted=True)
    if not every:
        raise subject_not_found(subject)
    live = state.versions(subject)
    if not permanent and not live:
        raise subject_soft_deleted(subject)
    _check_writable(state, subject)
    if permanent and live:
        raise subject_not_soft_deleted(subject)
    for stored in every if permanent else live:
        _check_unreferred(state, stored, permanent=permanent)
    if not permanent:
        last = live[-1].version
        value = encode_json({"subject": subject, "version": last})
        key = RecordKey(KeyType.DELETE_SUBJECT, subject)
        return PlannedChange(
            [each.version for each in live],
            [_put(key, value), *_without_settings(state, subject)],
        )
    records: list[Record] = [*_kept_highest_id(state)]
    for stored in every:
        records += _removed(state, _key(subject, stored.version))
    records += _without_settings(state, subject)
    return PlannedChange([each.version for each in every], records)


def _check_unreferred(state: RegistryState, stored: StoredSchema, *, permanent: bool) -> None:
    """A schema that is soft deleted can come back, and needs what it refers to."""
    for other in state.referrers(stored.subject, stored.version):
        if permanent or not other.is_deleted:
            raise referred_to(stored.subject, stored.version)


def _kept_highest_id(state: RegistryState) -> list[Record]:
    """Ids of other registries may be known by nothing but the schemas that go."""
    return [encode_highest_id(state.highest_id)]


def _without_settings(state: RegistryState, subject: str) -> list[Record]:
    records: list[Record] = []
    if state.own_mode(subject) is not None:
        records += _removed(state, RecordKey(KeyType.MODE, subject))
    if state.own_config(subject) is not None:
        records += _removed(state, RecordKey(KeyType.CONFIG, subject))
    return records


# --- settings ---


def set_config(
    state: RegistryState, subject: str | None, given: Mapping[str, Json]
) -> PlannedChange:
    """`given`: the fields to change, by their names in records. Others stay."""
    _check_writable(state, subject)
    known = state.own_config(subject)
    fields: dict[str, Json] = {} if subject is None else {"subject": subject}
    fields |= {} if known is None else known.fields
    fields |= given
    key = RecordKey(KeyType.CONFIG, subject)
    return PlannedChange(None, [_put(key, encode_json(fields))])


def delete_config(state: RegistryState, subject: str | None) -> PlannedChange:
    """The answer is the level that was there."""
    known = state.own_config(subject)
    if known is None and subject is not None:
        raise subject_not_found(subject)
    _check_writable(state, subject)
    level: Level = state.level(None) if known is None or known.level is None else known.level
    return PlannedChange(level.value, _removed(state, RecordKey(KeyType.CONFIG, subject)))


def set_mode(
    state: RegistryState, subject: str | None, mode: Mode, *, force: bool
) -> PlannedChange:
    if mode is Mode.READONLY_OVERRIDE and subject is not None:
        raise not_permitted(f"{mode} is a mode of the whole registry, not of a subject")
    records: list[Record] = []
    if mode is Mode.IMPORT and state.mode(subject) is not Mode.IMPORT and not force:
        names = state.subjects() if subject is None else [subject]
        if any(state.versions(name) for name in names):
            raise not_permitted("Cannot import since found existing subjects")
        records = _without_deleted(state, subject)
    value: dict[str, Json] = {} if subject is None else {"subject": subject}
    key = RecordKey(KeyType.MODE, subject)
    records.append(_put(key, encode_json({**value, "mode": mode.value})))
    return PlannedChange(mode.value, records)


def _without_deleted(state: RegistryState, subject: str | None) -> list[Record]:
    """Soft deleted versions must not stand in the way of what is imported."""
    records: list[Record] = _kept_highest_id(state)
    names = state.subjects(with_deleted=True) if subject is None else [subject]
    for name in names:
        for stored in state.versions(name, with_deleted=True):
            records += _removed(state, _key(name, stored.version))
    return records


def delete_mode(state: RegistryState, subject: str | None) -> PlannedChange:
    """The answer is the mode that was there."""
    known = state.own_mode(subject)
    if known is None and subject is not None:
        raise subject_not_found(subject)
    answer = (known or Mode.READWRITE).value
    return PlannedChange(answer, _removed(state, RecordKey(KeyType.MODE, subject)))


# --- records ---


def _key(subject: str, version: int) -> RecordKey:
    return RecordKey(KeyType.SCHEMA, subject, version)


def _put(key: RecordKey, value: bytes) -> Record:
    return key.encode(), value


def _removed(state: RegistryState, key: RecordKey) -> list[Record]:
    """All spellings of the key: a compacted topic keeps a value for each."""
    return [*((other, None) for other in state.spellings(key)), (key.encode(), None)]
