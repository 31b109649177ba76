"""A topic's schema: its columns in every version, and the key.

Versions are only appended. A later version has the columns of the one before in the same order,
perhaps of wider types or hidden, and new ones behind them; so rows of every version stay readable
for ever, by the ids of their columns.

As text, in the setting `headrace.schema`, a schema is JSON: the ids of the key's columns, and for
each version the columns that are new or changed in it.

    {"format": 1, "key": [1], "versions": [
      {"version": 1, "columns": [{"id": 1, "name": "id", "type": "BIGINT", "nullable": false},
                                 {"id": 2, "name": "fare", "type": "FLOAT"}]},
      {"version": 2, "columns": [{"id": 2, "name": "fare", "type": "DOUBLE"}]}]}
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError
from storage_engine.core.printable import printable
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.bounded_json import (
    JsonValue,
    check_text_size,
    json_boolean,
    json_integer,
    json_list,
    json_object,
    json_text,
    load_json,
    only_fields,
    shown,
)
from storage_engine.core.typed.column_types import ColumnSpec as ColumnSpec
from storage_engine.core.typed.column_types import check_widening
from storage_engine.core.typed.ddl import parse_type

SCHEMA_SETTING = "headrace.schema"
"""The setting of a topic that holds its schema."""

MAX_VERSIONS = 500
"""The most versions of a schema: each costs memory in every broker, as none is ever removed."""

MAX_KEY_COLUMNS = 32
MAX_COLUMN_ID = 2**31 - 1

_FORMAT = 1

_KEY_TYPES = (
    types.BooleanColumn,
    types.IntegerColumn,
    types.DecimalColumn,
    types.StringColumn,
    types.BinaryColumn,
    types.DateColumn,
    types.TimestampColumn,
)
"""The types of key columns: their values are equal exactly when their texts are."""

METADATA_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp", "_headers", "_deleted")
"""Columns that readers and writers may name beside a topic's own columns, none of which has one of
these names, in any case."""


class UnknownSchemaVersionError(KafkaError):
    """A batch has a version of its topic's schema that is not known here yet."""

    code = ErrorCode.UNKNOWN_SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaColumn:
    """A column of one version."""

    column_id: int
    """1 or more; never given to another column of the topic."""
    name: str
    type: types.ColumnType
    nullable: bool
    hidden: bool = False
    """Producers don't write a hidden column; readers get it where they name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """The columns from one change of the schema to the next."""

    version: int
    """From 1 on, without gaps."""
    columns: tuple[SchemaColumn, ...]
    """All columns, also hidden ones."""
    _by_id: Mapping[int, SchemaColumn] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def visible(self) -> tuple[SchemaColumn, ...]:
        """Return the columns that are not hidden."""
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def by_id(self) -> Mapping[int, SchemaColumn]:
        """Return the columns by their ids."""
        known = self._by_id
        if known is None:
            known = {column.column_id: column for column in self.columns}
            # The whole map at once: other threads may read it, too.
            object.__setattr__(self, "_by_id", known)
        return known

    def column(self, name: str) -> SchemaColumn:
        """Return the column of that name, hidden or not, whatever its case; ConfigError, with the
        nearest name, when there is none."""
        folded = name.lower()
        for column in self.columns:
            if column.name.lower() == folded:
                return column
        raise _no_column(name, [column.name for column in self.columns])


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSchema:
    """All versions of a topic's schema."""

    key: tuple[int, ...]
    """The ids of the key's columns, in the key's order; empty: rows have no key."""
    versions: tuple[SchemaVersion, ...]
    """At least one; the number of each is its place, from 1 on."""

    @property
    def latest(self) -> SchemaVersion:
        """Return the version that producers write."""
        return self.versions[-1]

    def version(self, number: int) -> SchemaVersion:
        """Return a version by its number. UnknownSchemaVersionError, which is retriable, for a
        number below 1 or above the latest known version."""
        if not 1 <= number <= len(self.versions):
            raise UnknownSchemaVersionError(
                f"version {number} of the topic's schema is not known here; the latest that is "
                f"known is {len(self.versions)}"
            )
        return self.versions[number - 1]

    def key_columns(self, version: SchemaVersion) -> tuple[SchemaColumn, ...]:
        """Return the columns of the key as that version has them, in the key's order."""
        return tuple(version.by_id[column_id] for column_id in self.key)

    def evolved(self, columns: Sequence[ColumnSpec]) -> "TopicSchema":
        """Return the schema with one version more, whose visible columns are these, by name: new
        names are added, types may be wider, columns that are left out are hidden, and hidden ones
        that are named again are shown. It is this schema itself where nothing changes. ConfigError
        says why a change is refused."""
        _check_specs(columns)
        wanted = {spec.name.lower(): spec for spec in columns}
        changes: list[SchemaColumn] = []
        for column in self.latest.columns:
            spec = wanted.pop(column.name.lower(), None)
            new = _hidden(column) if spec is None else self._as_wanted(column, spec)
            if new != column:
                changes.append(new)
        next_id = self.latest.columns[-1].column_id + 1
        changes += [
            _with_id(column_id, spec) for column_id, spec in enumerate(wanted.values(), next_id)
        ]
        if not changes:
            return self
        places = {column.column_id: n for n, column in enumerate(self.latest.columns)}
        version = _following(self.latest, changes, self.key, places)
        return _checked(TopicSchema(key=self.key, versions=(*self.versions, version)))

    def _as_wanted(self, column: SchemaColumn, spec: ColumnSpec) -> SchemaColumn:
        if spec.hidden:
            return _hidden(column)
        nullable = spec.nullable and column.column_id not in self.key
        return replace(column, type=spec.type, nullable=nullable, hidden=False)

    def check_successor(self, new: "TopicSchema") -> None:
        """ConfigError unless `new` is this schema, perhaps with versions appended."""
        if new.key != self.key:
            raise ConfigError("the key of a typed topic can't be changed: create another topic")
        if len(new.versions) < len(self.versions):
            raise ConfigError(
                f"the topic's schema has {len(self.versions)} versions, and {len(new.versions)} "
                "were given: versions are never removed"
            )
        for old, kept in zip(self.versions, new.versions, strict=False):
            if old != kept:
                raise ConfigError(
                    f"version {old.version} is not as the topic's schema has it: append versions "
                    "to those that it has, and change none of them"
                )

    def to_json(self) -> str:
        """Return the schema as the topic's setting has it."""
        versions: list[dict[str, JsonValue]] = []
        known: tuple[SchemaColumn, ...] = ()
        for version in self.versions:
            news = [
                column
                for place, column in enumerate(version.columns)
                if place >= len(known) or _differ(known[place], column)
            ]
            versions.append({"version": version.version, "columns": [_as_json(n) for n in news]})
            known = version.columns
        content = {"format": _FORMAT, "key": list(self.key), "versions": versions}
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "TopicSchema":
        """Return the schema of a setting; ConfigError for a text that is none."""
        content = json_object(load_json(text, "the schema"), "the schema")
        number = content.get("format")
        if number != _FORMAT:
            raise ConfigError(
                f"the schema's format is {shown(number)}: this version of Headrace reads {_FORMAT}"
            )
        only_fields(content, ("format", "key", "versions"), "the schema")
        key = tuple(
            _column_id(each, "a column id of the schema's key")
            for each in json_list(content.get("key"), "the schema's key")
        )
        rows = json_list(content.get("versions"), "the schema's list of versions")
        return _of_steps(key, [_step_of(place, row) for place, row in enumerate(rows, 1)])


def new_schema(columns: Sequence[ColumnSpec], key: Sequence[str] = ()) -> TopicSchema:
    """Return a schema of one version. Columns that `key` names become NOT NULL; ConfigError says
    what is wrong."""
    _check_specs(columns)
    for name in key:
        if not isinstance(name, str):
            raise ConfigError("the key is a list of column names")
    by_name = {spec.name.lower(): column_id for column_id, spec in enumerate(columns, 1)}
    ids: list[int] = []
    for name in key:
        column_id = by_name.get(name.lower())
        if column_id is None:
            raise _no_column(name, [spec.name for spec in columns])
        ids.append(column_id)
    made = [
        _with_id(column_id, replace(spec, nullable=spec.nullable and column_id not in ids))
        for column_id, spec in enumerate(columns, 1)
    ]
    return _of_steps(tuple(ids), [made])


@functools.lru_cache(maxsize=256)
def schema_of(text: str) -> TopicSchema:
    """Return the schema of a setting, read once for all partitions and requests."""
    return TopicSchema.from_json(text)


@functools.lru_cache(maxsize=256)
def usual_form(text: str) -> str:
    """Return the text of a setting as every broker would write it; ConfigError for no schema."""
    return schema_of(text).to_json()


# ---- steps from version to version ----


def _of_steps(key: tuple[int, ...], steps: Sequence[Sequence[SchemaColumn]]) -> TopicSchema:
    """Return the schema whose versions have these new and changed columns."""
    if not steps:
        raise ConfigError("the schema has no version: give it one with columns")
    version = SchemaVersion(version=0, columns=())
    versions: list[SchemaVersion] = []
    places: dict[int, int] = {}
    for changes in steps:
        version = _following(version, changes, key, places)
        versions.append(version)
    schema = TopicSchema(key=key, versions=tuple(versions))
    _check_key(schema)
    return _checked(schema)


def _following(
    before: SchemaVersion,
    changes: Sequence[SchemaColumn],
    key: tuple[int, ...],
    places: dict[int, int],
) -> SchemaVersion:
    """Return the version after `before` with these new and changed columns. `places` maps the ids
    of the columns of `before` to their places; the new ones are added to it."""
    if before.version == MAX_VERSIONS:
        raise ConfigError(f"a schema has at most {MAX_VERSIONS} versions: create another topic")
    columns = list(before.columns)
    highest = columns[-1].column_id if columns else 0
    seen: set[int] = set()
    for column in changes:
        if column.column_id in seen:
            raise ConfigError(f"column id {column.column_id} stands twice in one version")
        seen.add(column.column_id)
        place = places.get(column.column_id)
        if place is not None:
            _check_change(before.columns[place], column, key)
            columns[place] = column
            continue
        _check_added(column, is_first_version=not before.columns)
        if column.column_id <= highest:
            raise ConfigError(
                f"column '{printable(column.name)}' has the id {column.column_id}: ids of new "
                f"columns go up from {highest + 1}"
            )
        highest = column.column_id
        places[highest] = len(columns)
        columns.append(column)
    if not changes:
        raise ConfigError(
            f"version {before.version + 1} of the schema changes nothing: leave it out"
        )
    if all(column.hidden for column in columns):
        raise ConfigError("all columns of the topic would be hidden: keep one")
    return SchemaVersion(version=before.version + 1, columns=tuple(columns))


def _check_added(column: SchemaColumn, *, is_first_version: bool) -> None:
    types.check_name(column.name, what="column")
    if column.name.lower() in METADATA_COLUMNS:
        raise ConfigError(
            f"column '{printable(column.name)}': {', '.join(METADATA_COLUMNS)} tell where a row "
            "comes from: rename it"
        )
    if is_first_version:
        if column.hidden:
            raise ConfigError(
                f"column '{printable(column.name)}' is hidden from the beginning: leave it out"
            )
    elif not column.nullable:
        raise ConfigError(
            f"column '{printable(column.name)}' is new and NOT NULL, but earlier rows don't have "
            "it: make it nullable"
        )


def _check_change(old: SchemaColumn, new: SchemaColumn, key: tuple[int, ...]) -> None:
    """ConfigError unless rows of both forms of the column can be read as the new one."""
    name = printable(old.name)
    if old.name != new.name:
        raise ConfigError(
            f"column '{name}' can't be renamed to '{printable(new.name)}': add a column"
        )
    if old == new:
        raise ConfigError(f"column '{name}' does not change: leave it out of the version")
    if old.column_id in key:
        raise ConfigError(
            f"column '{name}' belongs to the key, and can't be hidden, widened or made nullable: "
            "create another topic"
        )
    if old.nullable and not new.nullable:
        raise ConfigError(
            f"column '{name}' is nullable and rows may have nulls: it can't become NOT NULL"
        )
    if not old.nullable and new.nullable and not new.hidden:
        raise ConfigError(
            f"column '{name}' is NOT NULL and can't become nullable: readers may count on it"
        )
    if new.hidden and new.type != old.type:
        raise ConfigError(f"column '{name}' can't be hidden and widened at once: choose one")
    if new.hidden and not new.nullable:
        raise ConfigError(f"column '{name}' is hidden, so it must be nullable")
    check_widening(old.type, new.type, name)


def _check_key(schema: TopicSchema) -> None:
    """ConfigError unless the first version can have this key. Later ones keep its columns."""
    first = schema.versions[0].by_id
    if len(schema.key) > MAX_KEY_COLUMNS:
        raise ConfigError(f"the key has {len(schema.key)} columns: use at most {MAX_KEY_COLUMNS}")
    if len(set(schema.key)) < len(schema.key):
        raise ConfigError("the key names a column twice: name it once")
    for column_id in schema.key:
        column = first.get(column_id)
        if column is None:
            raise ConfigError(f"the key names column id {column_id}, which version 1 does not have")
        if not isinstance(column.type, _KEY_TYPES):
            raise ConfigError(
                f"column '{printable(column.name)}' is {types.ddl_of(column.type)[:80]}, which "
                "can't belong to a key: use BOOLEAN, whole numbers, DECIMAL, STRING, BINARY, DATE "
                "or TIMESTAMP"
            )
        if column.nullable:
            raise ConfigError(
                f"column '{printable(column.name)}' belongs to the key: make it NOT NULL"
            )


def _checked(schema: TopicSchema) -> TopicSchema:
    """Return the schema if its last version, which is the largest, is within all limits."""
    columns = schema.latest.columns
    types.check_types(column.type for column in columns)
    _check_names([column.name for column in columns])
    check_text_size(schema.to_json(), "the schema with all of its versions")
    return schema


# ---- columns as they are asked for ----


def _check_specs(columns: Sequence[ColumnSpec]) -> None:
    if not columns:
        raise ConfigError("the schema has no columns: name at least one")
    types.check_types(spec.type for spec in columns)
    _check_names([spec.name for spec in columns])


def _check_names(names: Sequence[str]) -> None:
    known: dict[str, str] = {}
    for name in names:
        other = known.get(name.lower())
        if other is not None:
            raise ConfigError(
                f"columns '{printable(other)}' and '{printable(name)}' have one name, as case "
                "makes no difference: rename one"
            )
        known[name.lower()] = name


def _with_id(column_id: int, spec: ColumnSpec) -> SchemaColumn:
    return SchemaColumn(
        column_id=column_id,
        name=spec.name,
        type=spec.type,
        nullable=spec.nullable,
        hidden=spec.hidden,
    )


def _hidden(column: SchemaColumn) -> SchemaColumn:
    """Return the column hidden and nullable, as rows have no values for it from now on."""
    return replace(column, hidden=True, nullable=True)


def _no_column(name: str, known: Sequence[str]) -> ConfigError:
    import difflib  # Only for a name that is wrong.

    near = difflib.get_close_matches(name[:255], known, n=1, cutoff=0.6)
    hint = f", did you mean '{printable(near[0])}'?" if near else ""
    return ConfigError(f"there is no column '{printable(name[:255])}'{hint}")


# ---- JSON ----


def _differ(one: SchemaColumn, other: SchemaColumn) -> bool:
    return one is not other and one != other


def _as_json(column: SchemaColumn) -> dict[str, JsonValue]:
    content: dict[str, JsonValue] = {
        "id": column.column_id,
        "name": column.name,
        "type": types.ddl_of(column.type, exact=True),
    }
    if not column.nullable:
        content["nullable"] = False
    if column.hidden:
        content["hidden"] = True
    return content


def _step_of(place: int, row: JsonValue) -> list[SchemaColumn]:
    what = f"version {place} of the schema"
    content = json_object(row, what)
    only_fields(content, ("version", "columns"), what)
    number = json_integer(content.get("version"), f"the number of {what}")
    if number != place:
        raise ConfigError(
            f"{what} has the number {shown(number)}: versions are numbered 1, 2, 3, ..."
        )
    columns = json_list(content.get("columns"), f"the list of columns of {what}")
    return [_column_of(each, what) for each in columns]


def _column_of(row: JsonValue, version: str) -> SchemaColumn:
    what = f"a column of {version}"
    content = json_object(row, what)
    only_fields(content, ("id", "name", "type", "nullable", "hidden"), what)
    name = json_text(content.get("name"), f"the name of {what}")
    return SchemaColumn(
        column_id=_column_id(content.get("id"), f"the id of {what}"),
        name=name,
        type=parse_type(json_text(content.get("type"), f"the type of {what}"), name),
        nullable=json_boolean(content.get("nullable", True), f"'nullable' of {what}"),
        hidden=json_boolean(content.get("hidden", False), f"'hidden' of {what}"),
    )


def _column_id(value: JsonValue, what: str) -> int:
    column_id = json_integer(value, what)
    if not 1 <= column_id <= MAX_COLUMN_ID:
        raise ConfigError(f"{what} is {shown(column_id)}: ids go from 1 to {MAX_COLUMN_ID}")
    return column_id
