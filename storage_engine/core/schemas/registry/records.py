"""The records of `_schemas`: keys and values in Confluent's JSON.

Key                                                      Value
{"keytype":"SCHEMA","subject":…,"version":n,"magic":1}   subject, version, id, schemaType (none:
                                                         AVRO), references, metadata, ruleSet,
                                                         schema, deleted
{"keytype":"CONFIG","subject":…,"magic":0}               subject, compatibilityLevel, …
{"keytype":"MODE","subject":…,"magic":0}                 subject, mode
{"keytype":"DELETE_SUBJECT","subject":…,"magic":0}       subject, version: the last that is deleted
{"keytype":"CLEAR_SUBJECT","subject":…,"magic":0}        subject: its deleted versions are gone
{"keytype":"NOOP","magic":0}                             none
{"magic":0,"keytype":"NOOP"}                             {"highestId":n}: ours

CONFIG and MODE without a subject are those of the whole registry. Null as a value takes a record
back. Other registries stop at a key type that they do not know, and read no value of a NOOP: so the
highest id is in the value of one whose key is spelled in another order, which keeps it apart from
theirs in a compacted topic. Source: Confluent's SchemaRegistrySerializer, KafkaStoreReaderThread.
"""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from storage_engine.core.schemas.languages import Reference, Schema, SchemaType

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Record: TypeAlias = tuple[bytes, bytes | None]
"""A key and a value."""

MOST_ID = 2**31 - 1
HIGHEST_ID_KEY = b'{"magic":0,"keytype":"NOOP"}'
_HIGHEST_ID = "highestId"
OTHER_CONTEXT = ":."


class KeyType(enum.StrEnum):
    SCHEMA = "SCHEMA"
    CONFIG = "CONFIG"
    MODE = "MODE"
    DELETE_SUBJECT = "DELETE_SUBJECT"
    CLEAR_SUBJECT = "CLEAR_SUBJECT"
    NOOP = "NOOP"
    CONTEXT = "CONTEXT"
    """Not served."""
    ASSOC = "ASSOC"
    """Not served."""


class Level(enum.StrEnum):
    """The versions and the direction in which a new one must be compatible."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class Mode(enum.StrEnum):
    """The changes that are allowed in a subject, or in all."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """A mode of the whole registry, above the modes of subjects."""
    IMPORT = "IMPORT"
    """Schemas come with the ids and versions that they have elsewhere."""


class ForeignRecordError(ValueError):
    """A record that is damaged, or not served here; the text says why."""


class RecordKey(NamedTuple):
    """A key. `version` is 0 except for a SCHEMA, `subject` None for the whole registry."""

    key_type: KeyType
    subject: str | None = None
    version: int = 0

    def encode(self) -> bytes:
        document: dict[str, Json] = {"keytype": self.key_type.value}
        if self.subject is not None:
            document["subject"] = self.subject
        if self.key_type is KeyType.SCHEMA:
            document["version"] = self.version
        document["magic"] = 1 if self.key_type is KeyType.SCHEMA else 0
        return encode_json(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema
    metadata: Json = None
    rule_set: Json = None
    is_deleted: bool = False
    foreign: Mapping[str, Json]
    """The value's other fields, which are kept when it is written again."""

    def encode(self) -> bytes:
        schema = self.schema
        fields: dict[str, Json] = {"subject": self.subject, "version": self.version, "id": self.id}
        if "md5" in self.foreign:
            fields["md5"] = self.foreign["md5"]
        if schema.schema_type is not SchemaType.AVRO:
            fields["schemaType"] = schema.schema_type.value
        if schema.references:
            fields["references"] = [reference_document(each) for each in schema.references]
        if self.metadata:
            fields["metadata"] = self.metadata
        if self.rule_set:
            fields["ruleSet"] = self.rule_set
        return encode_json(
            {**fields, "schema": schema.text, "deleted": self.is_deleted, **self.foreign}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConfig:
    """The settings of a subject, or of all."""

    level: Level | None
    normalize: bool | None
    group: str | None
    """The property of metadata in which compared schemas must agree."""
    fields: Mapping[str, Json]
    """All fields of the value."""


def reference_document(reference: Reference) -> dict[str, Json]:
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def encode_json(document: Json) -> bytes:
    return _ENCODER.encode(document).encode()


def decode_json(data: bytes) -> Json:
    """ValueError for what is no JSON, or nests too deep."""
    try:
        document: Json = _DECODER.decode(data.decode())
        if b"\\u" in data:
            # Half of a surrogate pair, which no text has: a ValueError, too.
            encode_json(document)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return document


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is no number of JSON")


# Made once: to make one takes as long as to read a key.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def object_in(data: bytes | None) -> dict[str, Json]:
    """The object in a key or value. ForeignRecordError for anything else."""
    if data is None:
        raise ForeignRecordError("it has no key")
    try:
        document = decode_json(data)
    except ValueError as error:
        raise ForeignRecordError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ForeignRecordError("it is not an object of JSON")
    return document


def decode_key(data: bytes | None) -> RecordKey:
    """ForeignRecordError for a key that is not served."""
    document = object_in(data)
    name = document.get("keytype")
    if not isinstance(name, str) or name not in KeyType.__members__:
        raise ForeignRecordError(f"the key type {name!r} is unknown")
    key_type = KeyType[name]
    if key_type in (KeyType.CONTEXT, KeyType.ASSOC):
        raise ForeignRecordError(f"records of the key type {name} are not served")
    if key_type is KeyType.NOOP:
        return RecordKey(key_type)
    subject = document.get("subject")
    if subject is not None and not isinstance(subject, str):
        raise ForeignRecordError("the key's subject is no text")
    if key_type is not KeyType.SCHEMA:
        if subject is None and key_type is KeyType.DELETE_SUBJECT:
            raise ForeignRecordError("the key has no subject")
        return RecordKey(key_type, _known(subject))
    if subject is None:
        raise ForeignRecordError("the key has no subject")
    if document.get("magic") not in (0, 1):
        raise ForeignRecordError(f"the key's magic is {document.get('magic')!r}, not 0 or 1")
    return RecordKey(key_type, _known(subject), _number(document, "version", 1))


def _known(subject: str | None) -> str | None:
    if subject is not None and subject.startswith(OTHER_CONTEXT):
        raise ForeignRecordError(f"the subject '{subject}' is in a context; these are not served")
    return subject


def given_id(value: bytes | None) -> int | None:
    """The id that a SCHEMA's value gives to anything, also one that can't be served otherwise."""
    try:
        return _number(object_in(value), "id", 0)
    except ForeignRecordError:
        return None


def decode_schema(key: RecordKey, value: bytes) -> StoredSchema:
    """ForeignRecordError for a value that is damaged, or of an unknown language."""
    rest = object_in(value)
    if (rest.pop("subject", None), rest.pop("version", None)) != (key.subject, key.version):
        raise ForeignRecordError("the value is of another subject or version than the key")
    schema_id = _number(rest, "id", 0)
    del rest["id"]
    name, text = rest.pop("schemaType", None) or SchemaType.AVRO.value, rest.pop("schema", None)
    if not isinstance(name, str) or name not in SchemaType.__members__:
        raise ForeignRecordError(f"the schemaType {name!r} is unknown")
    if not isinstance(text, str):
        raise ForeignRecordError("the value has no schema")
    deleted = rest.pop("deleted", False)
    if not isinstance(deleted, bool):
        raise ForeignRecordError("deleted is neither true nor false")
    assert key.subject is not None
    return StoredSchema(
        subject=key.subject,
        version=key.version,
        id=schema_id,
        schema=Schema(SchemaType[name], text, decode_references(rest.pop("references", None))),
        metadata=rest.pop("metadata", None) or None,
        rule_set=rest.pop("ruleSet", None) or None,
        is_deleted=deleted,
        foreign=rest,
    )


def decode_references(given: Json) -> tuple[Reference, ...]:
    """ForeignRecordError for anything but a list of objects with name, subject and version."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise ForeignRecordError("references is no list")
    found = []
    for row in given:
        if not isinstance(row, dict):
            raise ForeignRecordError("a reference is no object")
        name, subject = row.get("name"), row.get("subject")
        if not isinstance(name, str) or not isinstance(subject, str):
            raise ForeignRecordError("a reference has no name or no subject")
        found.append(Reference(name, subject, _number(row, "version", -1)))
    return tuple(found)


def decode_config(value: bytes) -> StoredConfig:
    fields = object_in(value)
    level, normalize = fields.get("compatibilityLevel"), fields.get("normalize")
    group = fields.get("compatibilityGroup")
    if level is not None and (not isinstance(level, str) or level not in Level.__members__):
        raise ForeignRecordError(f"the compatibilityLevel {level!r} is unknown")
    if normalize is not None and not isinstance(normalize, bool):
        raise ForeignRecordError("normalize is neither true nor false")
    if group is not None and not isinstance(group, str):
        raise ForeignRecordError("compatibilityGroup is no text")
    known = None if level is None else Level[level]
    return StoredConfig(level=known, normalize=normalize, group=group, fields=fields)


def decode_mode(value: bytes) -> Mode:
    mode = object_in(value).get("mode")
    if not isinstance(mode, str) or mode not in Mode.__members__:
        raise ForeignRecordError(f"the mode {mode!r} is unknown")
    return Mode[mode]


def decode_deleted_until(value: bytes) -> int:
    """The last version that a DELETE_SUBJECT deletes."""
    return _number(object_in(value), "version", 1)


def encode_highest_id(highest: int) -> Record:
    return HIGHEST_ID_KEY, encode_json({_HIGHEST_ID: highest})


def highest_id_in(value: bytes | None) -> int:
    """The highest id that a NOOP's value tells; 0 for another's NOOP."""
    if value is None:
        return 0
    try:
        return _number(object_in(value), _HIGHEST_ID, 0)
    except ForeignRecordError:
        return 0


def _number(document: Mapping[str, Json], name: str, least: int) -> int:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_ID:
        raise ForeignRecordError(f"{name} is {value!r}, no number from {least} to {MOST_ID}")
    return value
