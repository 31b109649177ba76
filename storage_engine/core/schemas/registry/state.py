"""The state that the records of `_schemas` make: subjects, versions, ids, settings, modes.

`apply` is its only change, for records read back as for those of long ago, so every instance that
has read up to the same offset has the same state. A record that is damaged or foreign changes
nothing but the count of them, and the highest id if it gives one away. Source: R-SR2.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from storage_engine.core.schemas.languages import Schema
from storage_engine.core.schemas.registry.records import (
    ForeignRecordError,
    Json,
    KeyType,
    Level,
    Mode,
    RecordKey,
    StoredConfig,
    StoredSchema,
    decode_config,
    decode_deleted_until,
    decode_key,
    decode_mode,
    decode_schema,
    encode_json,
    given_id,
    highest_id_in,
)

DEFAULT_LEVEL = Level.BACKWARD

ITEM_BYTES = 1_000
"""Roughly the memory of a version or a setting beside its text."""

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")
_Place = tuple[str, int]
"""A subject and a version."""

Sameness = tuple[Schema, bytes]
"""Equal for schemas that have the same id."""


def sameness(schema: Schema, metadata: Json, rule_set: Json) -> Sameness:
    return schema, encode_json([metadata, rule_set]) if metadata or rule_set else b""


def _sameness_of(stored: StoredSchema) -> Sameness:
    return sameness(stored.schema, stored.metadata, stored.rule_set)


class RegistryState:
    """Not for several threads at once."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._by_id: dict[int, dict[_Place, StoredSchema]] = {}
        self._ids: dict[Sameness, set[int]] = {}
        self._referrers: dict[_Place, set[_Place]] = {}
        self._configs: dict[str | None, StoredConfig] = {}
        self._modes: dict[str | None, Mode] = {}
        self._spellings: dict[RecordKey, set[bytes]] = {}
        """Keys that are there in another spelling than ours, as other registries write them."""
        self.highest_id = 0
        """No id up to it is ever given again."""
        self.skipped = 0
        """Records that were damaged or foreign."""
        self._version_bytes = 0

    # --- changes ---

    def apply(self, key: bytes | None, value: bytes | None) -> str | None:
        """Returns why the record is skipped; None where it is not."""
        try:
            known = decode_key(key)
            self._apply(known, value)
        except ForeignRecordError as error:
            self.skipped += 1
            if key is not None and b"SCHEMA" in key:
                self.highest_id = max(self.highest_id, given_id(value) or 0)
            return str(error)
        assert key is not None
        self._note_spelling(known, key, is_there=value is not None)
        return None

    def _apply(self, key: RecordKey, value: bytes | None) -> None:
        match key.key_type:
            case KeyType.NOOP:
                self.highest_id = max(self.highest_id, highest_id_in(value))
            case KeyType.SCHEMA:
                self._apply_schema(key, value)
            case KeyType.CONFIG:
                if value is None:
                    self._configs.pop(key.subject, None)
                else:
                    self._configs[key.subject] = decode_config(value)
            case KeyType.MODE:
                if value is None:
                    self._modes.pop(key.subject, None)
                else:
                    self._modes[key.subject] = decode_mode(value)
            case KeyType.DELETE_SUBJECT if value is not None and key.subject is not None:
                self._delete_until(key.subject, decode_deleted_until(value))
            case KeyType.CLEAR_SUBJECT if value is not None:
                self._clear(key.subject)

    def _apply_schema(self, key: RecordKey, value: bytes | None) -> None:
        assert key.subject is not None
        if value is None:
            self._remove(key.subject, key.version)
            return
        stored = decode_schema(key, value)
        place = (stored.subject, stored.version)
        # All others have the same text, so that one of them tells.
        others = islice(self._by_id.get(stored.id, {}).items(), 2)
        if any(at != place and each.schema.text != stored.schema.text for at, each in others):
            raise ForeignRecordError(f"the id {stored.id} is that of another schema")
        self._remove(*place)
        self._put(stored)

    def _put(self, stored: StoredSchema) -> None:
        place = (stored.subject, stored.version)
        self.highest_id = max(self.highest_id, stored.id)
        self._version_bytes += _bytes_of(stored)
        self._subjects.setdefault(stored.subject, {})[stored.version] = stored
        self._by_id.setdefault(stored.id, {})[place] = stored
        self._ids.setdefault(_sameness_of(stored), set()).add(stored.id)
        for reference in stored.schema.references:
            self._referrers.setdefault((reference.subject, reference.version), set()).add(place)

    def _remove(self, subject: str, version: int) -> None:
        versions = self._subjects.get(subject, {})
        stored = versions.pop(version, None)
        if stored is None:
            return
        self._version_bytes -= _bytes_of(stored)
        if not versions:
            del self._subjects[subject]
        place = (subject, version)
        places = self._by_id[stored.id]
        del places[place]
        if not places:
            del self._by_id[stored.id]
        same = _sameness_of(stored)
        if all(_sameness_of(other) != same for other in places.values()):
            _discard(self._ids, same, stored.id)
        for reference in stored.schema.references:
            _discard(self._referrers, (reference.subject, reference.version), place)

    def _delete_until(self, subject: str, last: int) -> None:
        for stored in list(self._subjects.get(subject, {}).values()):
            if stored.version <= last and not stored.is_deleted:
                deleted = replace(stored, is_deleted=True)
                self._subjects[subject][stored.version] = deleted
                self._by_id[stored.id][subject, stored.version] = deleted

    def _clear(self, subject: str | None) -> None:
        subjects = list(self._subjects) if subject is None else [subject]
        for name in subjects:
            for stored in list(self._subjects.get(name, {}).values()):
                if stored.is_deleted:
                    self._remove(name, stored.version)

    def _note_spelling(self, key: RecordKey, spelled: bytes, *, is_there: bool) -> None:
        if key.key_type is KeyType.NOOP or (spelled == key.encode() and key not in self._spellings):
            return
        if is_there and spelled != key.encode():
            self._spellings.setdefault(key, set()).add(spelled)
        elif not is_there:
            _discard(self._spellings, key, spelled)

    # --- questions ---

    @property
    def memory_bytes(self) -> int:
        """Roughly the memory of all that it holds."""
        settings = len(self._configs) + len(self._modes) + len(self._spellings)
        return self._version_bytes + settings * ITEM_BYTES

    def spellings(self, key: RecordKey) -> list[bytes]:
        """The keys, in other spellings than ours, under which there is a value, too."""
        return sorted(self._spellings.get(key, ()))

    def subjects(self, *, with_deleted: bool = False) -> list[str]:
        """The names of all subjects with a version, sorted."""
        return sorted(
            name
            for name, versions in self._subjects.items()
            if with_deleted or any(not each.is_deleted for each in versions.values())
        )

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[StoredSchema]:
        """The versions of a subject, in their order."""
        found = self._subjects.get(subject, {})
        return [
            found[version]
            for version in sorted(found)
            if with_deleted or not found[version].is_deleted
        ]

    def version(self, subject: str, version: int) -> StoredSchema | None:
        """A version, also one that is soft deleted."""
        return self._subjects.get(subject, {}).get(version)

    def latest(self, subject: str, *, with_deleted: bool = False) -> StoredSchema | None:
        found = self.versions(subject, with_deleted=with_deleted)
        return found[-1] if found else None

    @property
    def ids(self) -> int:
        """The number of ids that schemas have, also those that are soft deleted."""
        return len(self._by_id)

    def with_id(self, schema_id: int) -> list[StoredSchema]:
        """The versions with an id, also those that are soft deleted, by subject and version."""
        found = self._by_id.get(schema_id, {})
        return [found[place] for place in sorted(found)]

    def id_of(self, same: Sameness) -> int | None:
        """The lowest id of equal schemas, under whatever subject."""
        return min(self._ids.get(same, ()), default=None)

    def all_versions(self) -> Iterator[StoredSchema]:
        """All versions, by subject and version."""
        for subject in sorted(self._subjects):
            yield from self.versions(subject, with_deleted=True)

    def referrers(self, subject: str, version: int) -> list[StoredSchema]:
        """The versions that refer to one, also those that are soft deleted."""
        places: Iterable[_Place] = self._referrers.get((subject, version), ())
        return [self._subjects[name][number] for name, number in sorted(places)]

    def own_config(self, subject: str | None) -> StoredConfig | None:
        return self._configs.get(subject)

    def level(self, subject: str | None) -> Level:
        """The level that counts for a subject."""
        for config in (self._configs.get(subject), self._configs.get(None)):
            if config is not None and config.level is not None:
                return config.level
        return DEFAULT_LEVEL

    def normalizes(self, subject: str) -> bool:
        for config in (self._configs.get(subject), self._configs.get(None)):
            if config is not None and config.normalize is not None:
                return config.normalize
        return False

    def compatibility_group(self, subject: str) -> str | None:
        for config in (self._configs.get(subject), self._configs.get(None)):
            if config is not None and config.group is not None:
                return config.group
        return None

    def own_mode(self, subject: str | None) -> Mode | None:
        return self._modes.get(subject)

    def mode(self, subject: str | None) -> Mode:
        """The mode that counts for a subject."""
        whole = self._modes.get(None, Mode.READWRITE)
        if whole is Mode.READONLY_OVERRIDE:
            return whole
        return self._modes.get(subject, whole)


def _bytes_of(stored: StoredSchema) -> int:
    return len(stored.schema.text) + len(stored.subject) + ITEM_BYTES


def _discard(sets: dict[_Key, set[_Item]], key: _Key, item: _Item) -> None:
    found = sets.get(key)
    if found is not None:
        found.discard(item)
        if not found:
            del sets[key]
