"""A client of a schema registry with Confluent's REST interface, whoever's registry that is.

A schema of an id never changes, so it is fetched once and kept, within a bound; an id that the
registry does not know is not asked for again for a while. Of many ids at once, which damaged
records may have, those that are in no list of its schemas are not asked for at all. What is latest
is asked for each time.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from storage_engine.client.schema_registry_http import (
    JsonAnswer,
    RegistryAddress,
    RegistryHttp,
    SchemaRegistryError,
    quoted_path,
)
from storage_engine.core.schemas.languages import Reference, Schema, SchemaType

MAX_KEPT_BYTES = 64 << 20
"""The most text of schemas that is kept; beyond it the oldest are fetched again when needed."""

KEPT_OVERHEAD_BYTES = 1024
"""The bytes that a kept schema counts beside its text: tiny ones are bounded in number, too."""

MAX_UNKNOWN_IDS = 10_000
UNKNOWN_ID_S = 30.0
"""How long an id that no instance knows is not asked for again. Damaged records may have any id."""

LAG_S = 1.0
"""How long an id that was not known is asked for: an instance may learn of a new schema a moment
after a producer has written by it."""

PATIENT_IDS = 8
"""As many unknown ids are waited for; where there are more, records are damaged, not early."""

MAX_ASKED_IDS = 100
"""Where more ids are needed at once that are not kept, a list of all schemas is fetched first."""

NEW_IDS = 1_000
"""So many ids above the highest in a list may have been given since: they are asked for."""

MAX_REGISTERED = 1_000
"""The most registrations that are remembered: a stream registers its schema at each micro-batch."""

MAX_REFERENCES = 1_000
"""The most schemas that one refers to, directly or not."""

_SERIALIZED = "format=serialized"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    schema: Schema


class UnknownSchemaIdError(SchemaRegistryError):
    """No instance of the registry knows the id."""


class SchemaRegistry:
    """Asks one registry, and keeps schemas by their ids."""

    def __init__(
        self,
        address: RegistryAddress,
        *,
        lag_s: float | None = None,
        kept_bytes: int | None = None,
    ) -> None:
        """LAG_S and MAX_KEPT_BYTES unless others are given. ConfigError where the files of TLS
        can't be used. Nothing is connected to here."""
        self._http = RegistryHttp(address)
        self._lag_s = LAG_S if lag_s is None else lag_s
        self._most_kept_bytes = MAX_KEPT_BYTES if kept_bytes is None else kept_bytes
        self._kept: dict[int, Schema] = {}
        self._kept_bytes = 0
        self._unknown: dict[int, float] = {}
        self._no_list_until = 0.0
        self._registered: dict[tuple[str, Schema, bool], int] = {}

    def by_id(self, schema_id: int) -> Schema:
        """The schema of an id. UnknownSchemaIdError; SchemaRegistryError; DeadlineExceededError."""
        found = self._kept.get(schema_id)
        if found is None:
            found = self._fetched(schema_id)
            self._keep(schema_id, found)
        return found

    def descriptor(self, schema_id: int) -> Schema:
        """The schema of an id whose language is Protobuf, with its descriptor in base64 as text.
        Errors as in `by_id`."""
        path = f"/schemas/ids{quoted_path(schema_id)}"
        answer = self._http.ask_every_instance(f"{path}?{_SERIALIZED}")
        return _schema(_object(answer, path), path)

    def places_of(self, schema_id: int) -> list[tuple[str, int]]:
        """The versions of subjects that have the schema of an id, as far as the user may see them;
        SchemaRegistryError where it is in none."""
        path = f"/schemas/ids{quoted_path(schema_id)}/versions"
        answer = self._http.ask_every_instance(path)
        if not isinstance(answer, list):
            raise _malformed(path, "list")
        rows = [_object(each, path) for each in answer]
        return [(_text(row, "subject", path), _integer(row, "version", path)) for row in rows]

    def unknown_among(self, ids: Collection[int]) -> frozenset[int]:
        """Return those of `ids` that the registry does not know, as far as it is cheap to tell:
        none of few ids, or where there is no list. SchemaRegistryError; DeadlineExceededError."""
        wanted = frozenset(ids) - self._kept.keys()
        if len(wanted) <= MAX_ASKED_IDS:
            return frozenset()
        known = self._listed()
        if known is None:
            return frozenset()
        highest = max(known, default=0)
        return frozenset(each for each in wanted - known if not highest < each <= highest + NEW_IDS)

    def unknown(self, schema_id: int) -> "UnknownSchemaIdError":
        """Return what `by_id` raises for an id that the registry does not know."""
        return UnknownSchemaIdError(
            f"the schema registry at {self._http.address} knows no schema of id {schema_id}",
            status=404,
            code=40403,
        )

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest version of a subject. SchemaRegistryError where there is none."""
        return self._version(subject, "latest")

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """A version of a subject. SchemaRegistryError where there is none."""
        return self._version(subject, version)

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """The id of the schema, which is a version of the subject from now on, as it perhaps was
        before; asked for once. SchemaRegistryError where the registry refuses it, as not compatible
        above all."""
        wanted = (subject, schema, normalize)
        if wanted not in self._registered:
            path = f"/subjects{quoted_path(subject)}/versions"
            answer = self._http.ask("POST", path + _normalized(normalize), _body(schema))
            if len(self._registered) >= MAX_REGISTERED:
                self._registered.clear()
            self._registered[wanted] = _integer(_object(answer, path), "id", path)
        return self._registered[wanted]

    def find(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema | None:
        """The version of a subject that has this very schema; None where none has it."""
        path = f"/subjects{quoted_path(subject)}"
        try:
            answer = self._http.ask("POST", path + _normalized(normalize), _body(schema))
        except SchemaRegistryError as error:
            if error.status != 404:
                raise
            return None
        return _registered(_object(answer, path), path)

    def references_of(self, schema: Schema, *, serialized: bool = False) -> dict[str, Schema]:
        """All schemas that `schema` refers to, directly or through others, by the names of the
        references; `serialized`: with descriptors as texts. SchemaRegistryError where there are too
        many, or one name means two."""
        found: dict[str, Schema] = {}
        versions: dict[str, tuple[str, int]] = {}
        waiting = list(schema.references)
        while waiting:
            reference = waiting.pop()
            place = (reference.subject, reference.version)
            if versions.setdefault(reference.name, place) != place:
                raise SchemaRegistryError(
                    f"a schema refers to '{reference.name}' in two versions: {versions} and {place}"
                )
            if reference.name in found:
                continue
            if len(found) >= MAX_REFERENCES:
                raise SchemaRegistryError(f"a schema refers to more than {MAX_REFERENCES} others")
            query = f"?{_SERIALIZED}" if serialized else ""
            known = self._version(reference.subject, reference.version, query).schema
            found[reference.name] = known
            waiting.extend(known.references)
        return found

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _fetched(self, schema_id: int) -> Schema:
        now = time.monotonic()
        if self._unknown.get(schema_id, now) > now:
            raise self.unknown(schema_id)
        path = f"/schemas/ids{quoted_path(schema_id)}"
        patience_s = self._lag_s if len(self._unknown) < PATIENT_IDS else 0.0
        while True:
            try:
                answer = self._http.ask_every_instance(path)
                break
            except SchemaRegistryError as error:
                if error.status != 404:
                    raise
                if time.monotonic() >= now + patience_s:
                    self._note_unknown(schema_id)
                    raise self.unknown(schema_id) from None
                time.sleep(0.1)
        self._unknown.pop(schema_id, None)
        return _schema(_object(answer, path), path)

    def _note_unknown(self, schema_id: int) -> None:
        now = time.monotonic()
        # The first ones are the oldest.
        while self._unknown:
            oldest = next(iter(self._unknown))
            if len(self._unknown) < MAX_UNKNOWN_IDS and self._unknown[oldest] > now:
                break
            del self._unknown[oldest]
        self._unknown.pop(schema_id, None)
        self._unknown[schema_id] = now + UNKNOWN_ID_S

    def _listed(self) -> frozenset[int] | None:
        """The ids of all schemas, also deleted ones; None where the registry gives no such list, as
        it would be too long, or is older."""
        if time.monotonic() < self._no_list_until:
            return None
        path = "/schemas"
        try:
            answer = self._http.ask("GET", f"{path}?deleted=true")
            if not isinstance(answer, list):
                raise _malformed(path, "array")
            return frozenset(_integer(_object(each, path), "id", path) for each in answer)
        except SchemaRegistryError:
            self._no_list_until = time.monotonic() + UNKNOWN_ID_S
            return None

    def _keep(self, schema_id: int, schema: Schema) -> None:
        size = len(schema.text) + KEPT_OVERHEAD_BYTES
        self._kept[schema_id] = schema
        self._kept_bytes += size
        while self._kept_bytes > self._most_kept_bytes and len(self._kept) > 1:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._kept_bytes -= len(oldest.text) + KEPT_OVERHEAD_BYTES

    def _version(self, subject: str, version: int | str, query: str = "") -> RegisteredSchema:
        path = f"/subjects{quoted_path(subject)}/versions{quoted_path(version)}"
        return _registered(_object(self._http.ask_every_instance(path + query), path), path)


def _normalized(normalize: bool) -> str:
    return "?normalize=true" if normalize else ""


def _body(schema: Schema) -> dict[str, JsonAnswer]:
    body: dict[str, JsonAnswer] = {"schema": schema.text}
    if schema.schema_type is not SchemaType.AVRO:
        body["schemaType"] = schema.schema_type.value
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    return body


def _registered(answer: Mapping[str, JsonAnswer], path: str) -> RegisteredSchema:
    return RegisteredSchema(
        subject=_text(answer, "subject", path),
        version=_integer(answer, "version", path),
        schema_id=_integer(answer, "id", path),
        schema=_schema(answer, path),
    )


def _schema(answer: Mapping[str, JsonAnswer], path: str) -> Schema:
    kind = answer.get("schemaType", SchemaType.AVRO.value)
    try:
        schema_type = SchemaType(kind)
    except ValueError:
        raise SchemaRegistryError(
            f"the schema registry answers {path} with a schema of the type {kind!r:.100}, which is "
            "not known here"
        ) from None
    given = answer.get("references") or []
    if not isinstance(given, list):
        raise _malformed(path, "references")
    references = tuple(
        Reference(
            name=_text(each, "name", path),
            subject=_text(each, "subject", path),
            version=_integer(each, "version", path),
        )
        for each in (_object(one, path) for one in given)
    )
    return Schema(
        schema_type=schema_type, text=_text(answer, "schema", path), references=references
    )


def _object(answer: JsonAnswer, path: str) -> dict[str, JsonAnswer]:
    if not isinstance(answer, dict):
        raise _malformed(path, "object")
    return answer


def _text(answer: Mapping[str, JsonAnswer], name: str, path: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str):
        raise _malformed(path, name)
    return value


def _integer(answer: Mapping[str, JsonAnswer], name: str, path: str) -> int:
    value = answer.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _malformed(path, name)
    return value


def _malformed(path: str, name: str) -> SchemaRegistryError:
    return SchemaRegistryError(
        f"the answer to {path} has no right '{name}': what answers is no schema registry; correct "
        "its URL"
    )
