"""A request, as the routes see it: its path, parameters and body, each checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headrace_registry.access.rights import Doing, Viewer, check_may
from headrace_registry.forwarding import RawRequest
from headrace_registry.schema_calls import GivenSchema
from storage_engine.core.schemas.languages import Schema, SchemaType
from storage_engine.core.schemas.registry.changes import LATEST, check_subject
from storage_engine.core.schemas.registry.records import (
    MOST_ID,
    ForeignRecordError,
    Json,
    StoredSchema,
    decode_json,
    decode_references,
    encode_json,
)
from storage_engine.core.schemas.registry.registry_error import (
    RegistryError,
    invalid_schema,
    invalid_version,
    subject_not_found,
)

if TYPE_CHECKING:
    from headrace_registry.registry_service import RegistryService

_SCHEMA_FIELDS = frozenset(
    {"schema", "schemaType", "references", "metadata", "ruleSet", "id", "version", "subject"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParams:
    """The parameters of the query; of one given twice the last counts."""

    values: Mapping[str, str]

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.values.get(name)
        return default if value is None else value.lower() in ("true", "")

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def number(self, name: str, default: int) -> int:
        text = self.values.get(name)
        if text is None or text == "":
            return default
        number = _number(text)
        if number is None:
            raise RegistryError(400, f"the parameter {name} is '{text}', no number")
        return number


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 10):
        return None
    return int(text)


@dataclass(frozen=True, kw_only=True)
class RegistryCall:
    """A request with who asks."""

    service: "RegistryService"
    viewer: Viewer
    path: Mapping[str, str]
    params: QueryParams
    raw: RawRequest

    @cached_property
    def subject(self) -> str:
        return check_subject(self.path["subject"])

    @cached_property
    def version(self) -> int:
        """The number in the path; LATEST."""
        text = self.path["version"]
        if text in ("latest", str(LATEST)):
            return LATEST
        number = _number(text)
        if number is None or not 1 <= number <= MOST_ID:
            raise invalid_version(text)
        return number

    @cached_property
    def schema_id(self) -> int:
        number = _number(self.path["id"])
        if number is None or not 0 <= number <= MOST_ID:
            raise RegistryError(404, f"'{self.path['id']}' is not the id of a schema")
        return number

    @cached_property
    def body(self) -> dict[str, Json]:
        """The object in the body."""
        try:
            document = decode_json(self.raw.body)
            encode_json(document)
        except ValueError as error:
            raise RegistryError(400, f"the body is not JSON in UTF-8: {error}") from None
        if not isinstance(document, dict):
            raise RegistryError(400, "the body is not an object of JSON")
        return document

    def only(self, *names: str) -> None:
        """RegistryError for a field of the body that has a value and another name."""
        for name, value in self.body.items():
            if name not in names and value is not None:
                raise RegistryError(422, f"Unrecognized field: {name}")

    def given_schema(self) -> GivenSchema:
        """The schema in the body."""
        body = self.body
        self.only(*_SCHEMA_FIELDS)
        name = body.get("schemaType") or SchemaType.AVRO.value
        if not isinstance(name, str) or name.upper() not in SchemaType.__members__:
            raise invalid_schema(f"the schemaType {name!r} is not AVRO, JSON or PROTOBUF")
        text = body.get("schema")
        if not isinstance(text, str) or not text.strip():
            raise invalid_schema("Empty schema")
        try:
            references = decode_references(body.get("references"))
        except ForeignRecordError as error:
            raise invalid_schema(str(error)) from None
        seen = self.viewer.seen({each.subject for each in references})
        for each in references:
            if each.subject not in seen:
                raise invalid_schema(
                    f"its reference '{each.name}' is to subject '{each.subject}' version "
                    f"{each.version}, which is not there"
                )
        return GivenSchema(
            schema=Schema(SchemaType[name.upper()], text, references),
            metadata=self._object("metadata"),
            rule_set=self._object("ruleSet"),
            schema_id=self._whole("id"),
            version=self._whole("version"),
        )

    def _object(self, name: str) -> Json:
        value = self.body.get(name)
        if value is not None and not isinstance(value, dict):
            raise RegistryError(422, f"{name} is no object")
        return value or None

    def _whole(self, name: str) -> int | None:
        """A number; None for one that is not given, which clients write as 0 or -1, too."""
        value = self.body.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value > MOST_ID:
            raise RegistryError(422, f"{name} is no number up to {MOST_ID}")
        return value if value > 0 else None

    def formatted(self, stored: StoredSchema) -> StoredSchema:
        """The schema with its text in the wanted format: `format=serialized` for Protobuf."""
        if self.params.text("format") != "serialized":
            return stored
        text = self.service.schemas.serialized(stored.schema)
        if text is None:
            return stored
        return replace(stored, schema=replace(stored.schema, text=text))

    # --- rights ---

    def check_sees(self, subject: str) -> None:
        """RegistryError as if it were not there."""
        if subject not in self.viewer.seen([subject]):
            raise subject_not_found(subject)

    def sees(self, subjects: Sequence[str]) -> list[str]:
        seen = self.viewer.seen(subjects)
        return [each for each in subjects if each in seen]

    def check_may(self, doing: Doing, subject: str | None) -> None:
        check_may(self.viewer, doing, subject)
