"""The columns of typed topics that a query reads, with their names and types, and the rows. Pure.

It is decided once, when the query begins, and kept: a running query goes on with the versions of
the schemas that it began with. Several topics are read together where the columns that are read are
the same in all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connector.errors import OptionError
from connector.typed_columns import METADATA_COLUMNS, column_type_of, metadata_types, spark_type
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.column_types import ColumnType, ddl_of, nullable_form
from storage_engine.core.typed.comparisons import Comparison
from storage_engine.core.typed.topic_schema import SchemaColumn, SchemaVersion
from storage_engine.core.typed.where import parse_where

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadColumn:
    """A column of the rows."""

    name: str
    """The column's name in Spark's rows."""

    column: str
    """The column's name in the topics, or one of METADATA_COLUMNS."""

    type: ColumnType | None
    """None for one of METADATA_COLUMNS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedRead:
    """The columns and rows of a query. It is pickled into tasks, and holds what they need."""

    columns: tuple[ReadColumn, ...]
    is_whole: bool
    """Whether no columns were named, so that the topics must have no others."""

    where: str | None
    schemas: Mapping[str, KnownSchema]
    """The schema of each topic when the query began."""

    others: Mapping[str, ColumnType] = field(default_factory=dict)
    """Columns beside METADATA_COLUMNS that are not of a topic's schema."""

    @property
    def topic_columns(self) -> tuple[ReadColumn, ...]:
        return tuple(each for each in self.columns if each.type is not None)

    def comparisons(self, topic: str, version: SchemaVersion) -> tuple[Comparison, ...]:
        """The conditions on rows of a topic. OptionError for a column that it does not have."""
        return () if self.where is None else _parsed(self.where, topic, version)

    def spark_schema(self) -> "StructType":
        """The schema of the rows, all of it nullable."""
        from pyspark.sql.types import StructField, StructType

        return StructType(
            [
                StructField(
                    each.name,
                    _metadata_type(each.column, self.others)
                    if each.type is None
                    else spark_type(each.type),
                )
                for each in self.columns
            ]
        )


def plan_read(
    schemas: Mapping[str, KnownSchema],
    *,
    chosen: Sequence[str] | None,
    where: str | None,
    user_schema: "StructType | None",
    others: Mapping[str, ColumnType] | None = None,
    appended: Sequence[str] = (),
) -> TypedRead:
    """The columns and rows to read of the topics of `schemas`. `chosen`: the option `columns`;
    `user_schema`: the argument of `.schema(…)`; `others`: see `TypedRead`; `appended`: those of
    them, and of METADATA_COLUMNS, that follow unless they are named. OptionError where names are of
    no column or contradict each other, and where the topics have different columns."""
    others = others or {}
    topics = sorted(schemas)
    first = schemas[topics[0]].schema.latest
    if user_schema is not None and chosen is not None:
        _check_same_names(user_schema.names, chosen)
    names = user_schema.names if user_schema is not None else chosen
    if names is None:
        columns = [_topic_column(each, each.name) for each in first.visible]
    else:
        columns = [_named(name, topics[0], first, others) for name in names]
    if user_schema is not None:
        columns = _as_user_wants(user_schema, columns, topics[0], others)
    else:
        named = {each.column for each in columns}
        columns += [
            ReadColumn(name=name, column=name, type=None) for name in appended if name not in named
        ]
    read = TypedRead(
        columns=tuple(columns),
        is_whole=names is None,
        where=where,
        schemas=dict(schemas),
        others=others,
    )
    for topic in topics:
        check_fits(read, topic, schemas[topic].schema.latest, beside=topics[0])
    return read


def check_fits(read: TypedRead, topic: str, version: SchemaVersion, *, beside: str) -> None:
    """OptionError unless the columns that are read are the same in `topic` as in `beside`."""
    columns = {each.name.lower(): each for each in version.columns}
    for each in read.topic_columns:
        assert each.type is not None
        found = columns.get(each.column.lower())
        if found is None:
            raise _differ(topic, beside, f"'{topic}' has no column '{each.column}'")
        if nullable_form(found.type) != each.type:
            raise _differ(
                topic,
                beside,
                f"the column '{each.column}' is {ddl_of(found.type)} in '{topic}' and "
                f"{ddl_of(each.type)} in '{beside}'",
            )
    if read.is_whole and topic != beside:
        known = {each.column.lower() for each in read.columns}
        for other in version.visible:
            if other.name.lower() not in known:
                raise _differ(topic, beside, f"'{beside}' has no column '{other.name}'")
    read.comparisons(topic, version)


def check_typed_alike(schemas: Mapping[str, KnownSchema | None]) -> None:
    """OptionError where some topics have a schema and others have none."""
    typed = sorted(topic for topic, known in schemas.items() if known is not None)
    others = sorted(schemas.keys() - set(typed))
    if typed and others:
        raise OptionError(
            "BAD_SCHEMA",
            f"the topic '{typed[0]}' has a schema and '{others[0]}' has none, so they can't be "
            "read together: read them apart",
        )


def _topic_column(column: SchemaColumn, name: str) -> ReadColumn:
    return ReadColumn(name=name, column=column.name, type=nullable_form(column.type))


def _metadata_type(column: str, others: Mapping[str, ColumnType]) -> "DataType":
    return spark_type(others[column]) if column in others else metadata_types()[column]


def _named(
    name: str, topic: str, version: SchemaVersion, others: Mapping[str, ColumnType]
) -> ReadColumn:
    if name.lower() in METADATA_COLUMNS or name.lower() in others:
        return ReadColumn(name=name.lower(), column=name.lower(), type=None)
    try:
        column = version.column(name)
    except ConfigError as error:
        besides = ", ".join((*METADATA_COLUMNS, *others))
        text = f"the topic '{topic}': {error}; besides, {besides} can be named"
        raise OptionError("BAD_COLUMN", text) from None
    return _topic_column(column, column.name)


def _as_user_wants(
    schema: "StructType",
    columns: Iterable[ReadColumn],
    topic: str,
    others: Mapping[str, ColumnType],
) -> list[ReadColumn]:
    """The columns under the names that the user gave them. Their types must be the topic's."""
    wanted = []
    for given, each in zip(schema.fields, columns, strict=True):
        if each.type is None:
            right = _metadata_type(each.column, others).simpleString()
            is_right = given.dataType.simpleString() == right
        else:
            is_right = nullable_form(column_type_of(given.name, given.dataType)) == each.type
            right = ddl_of(each.type)
        if not is_right:
            raise OptionError(
                "BAD_SCHEMA",
                f"the column '{given.name}' of the topic '{topic}' is {right}, and "
                f"{given.dataType.simpleString()} was asked for: ask for {right}, and cast it, or "
                "load() again where the topic has changed",
            )
        if not given.nullable:
            raise OptionError(
                "BAD_SCHEMA",
                f"the column '{given.name}' can't be NOT NULL in what is read, as rows of older "
                "versions may lack it: leave out NOT NULL",
            )
        wanted.append(ReadColumn(name=given.name, column=each.column, type=each.type))
    return wanted


def _check_same_names(schema: Sequence[str], chosen: Sequence[str]) -> None:
    if [name.lower() for name in schema] != [name.lower() for name in chosen]:
        raise OptionError(
            "BAD_OPTION",
            f"'columns' names {', '.join(chosen)}, and .schema(…) {', '.join(schema)}: leave one "
            "of them out",
        )


def _parsed(where: str, topic: str, version: SchemaVersion) -> tuple[Comparison, ...]:
    try:
        # Spark reads a time without a zone in the session's, which sources in Python don't get.
        return parse_where(where, version, needs_zone=True)
    except ConfigError as error:
        raise OptionError("BAD_OPTION", f"'where', for the topic '{topic}': {error}") from None


def _differ(topic: str, beside: str, how: str) -> OptionError:
    if topic == beside:
        return OptionError("BAD_SCHEMA", f"{how}: load() again, the topic has changed")
    return OptionError(
        "BAD_SCHEMA",
        f"the topics '{beside}' and '{topic}' can't be read together, because {how}: read them "
        "apart, or name columns that both have with the option 'columns'",
    )
