"""The topics of a query: which have a schema, and which columns are read. The brokers are asked
once, when the query begins, and the result goes with the reader; topics that come later, or are
created again, are asked for once each and must fit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from connector.errors import OptionError, in_one_line
from connector.options.source_options import SourceOptions
from connector.source.avro.avro_read import AvroRead, plan_avro
from connector.source.source_metadata import FoundPartitions, SourceMetadata
from connector.source.typed.typed_read import (
    TypedRead,
    check_fits,
    check_typed_alike,
    plan_read,
)
from connector.topic_schemas import known_schemas

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from storage_engine.client.topic_schemas import KnownSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The topics of a query and what is read of them. Pickled into tasks with the reader."""

    typed: TypedRead | None
    """The columns and rows to read; None: the topics have no schema, and records are read."""

    topics: Mapping[str, UUID | None] = field(default_factory=dict)
    """The topics that were checked, with their ids."""

    avro: AvroRead | None = None
    """The reading of records in Avro; None: values are bytes, or the topics have a schema."""

    @property
    def plan(self) -> TypedRead | AvroRead | None:
        """The columns and rows to read; None: records are read."""
        return self.typed or self.avro


def find_reading(options: SourceOptions, user_schema: "StructType | None" = None) -> Reading:
    """Asks the brokers which topics the options mean and which schemas they have. OptionError where
    options, or the schema that the user gave, don't fit them; ConnectorError UNKNOWN_TOPIC."""
    metadata = SourceMetadata(options.connection, isolation_level=options.isolation_level)
    found = metadata.find_all(options.subscription)
    topics = sorted({each.topic for each in found.partitions})
    schemas = _asked(options, topics)
    ids = {name: found.topic_ids.get(name) for name in topics}
    check_typed_alike(schemas)
    typed = {name: known for name, known in schemas.items() if known is not None}
    if options.avro is not None:
        _check_untyped(typed)
        avro = plan_avro(options, topics, user_schema=user_schema)
        return Reading(typed=None, topics=ids, avro=avro)
    if not typed:
        _check_without_schema(options, topics)
        return Reading(typed=None, topics=ids)
    if options.include_headers is not None:
        raise OptionError(
            "BAD_OPTION",
            f"'includeHeaders' is for topics without a schema, and '{min(typed)}' has one: name "
            "_headers in 'columns'",
        )
    read = plan_read(
        typed, chosen=options.chosen_columns, where=options.where, user_schema=user_schema
    )
    return Reading(typed=read, topics=ids | {name: each.topic_id for name, each in typed.items()})


def _check_untyped(typed: "Mapping[str, KnownSchema]") -> None:
    if typed:
        raise OptionError(
            "BAD_OPTION",
            f"'value.format=avro' is for topics whose values are Avro, and '{min(typed)}' is a "
            "typed topic, which is read as columns by itself: leave the option out",
        )


def _check_without_schema(options: SourceOptions, topics: list[str]) -> None:
    if options.where is not None:
        raise OptionError(
            "BAD_OPTION",
            f"'where' needs a topic with a schema, and '{topics[0]}' has none: leave it out, and "
            "use .where(…) of the DataFrame",
        )


class TopicCheck:
    """Checks topics that did not exist when the query began."""

    def __init__(self, options: SourceOptions, reading: Reading) -> None:
        self._options = options
        self._typed = reading.typed
        self._known: dict[str, UUID | None] = dict(reading.topics)
        self._checked: Mapping[str, UUID] | None = None

    def check(self, found: FoundPartitions) -> None:
        """OptionError for a topic that can't be read together with those before."""
        if self._checked == found.topic_ids:
            return
        new = [
            name
            for name in sorted({each.topic for each in found.partitions})
            if name not in self._known or self._is_another(name, found)
        ]
        if new:
            for name, known in _asked(self._options, new).items():
                self._check_one(name, known)
                self._known[name] = found.topic_ids.get(name)
        self._checked = dict(found.topic_ids)

    def _is_another(self, name: str, found: FoundPartitions) -> bool:
        now, before = found.topic_ids.get(name), self._known[name]
        return now is not None and before is not None and now != before

    def _check_one(self, name: str, known: "KnownSchema | None") -> None:
        if self._typed is None:
            others = {each: None for each in self._known if each != name}
            if known is not None and not others:
                raise OptionError(
                    "BAD_SCHEMA",
                    f"the topic '{name}' was created again with a schema: start a new query",
                )
            check_typed_alike({name: known, **others})
            return
        beside = {each: value for each, value in self._typed.schemas.items() if each != name}
        if known is None:
            if beside:
                check_typed_alike({name: None, **beside})
            raise OptionError(
                "BAD_SCHEMA",
                f"the topic '{name}' was created again without a schema: start a new query",
            )
        check_fits(self._typed, name, known.schema.latest, beside=min(beside, default=name))


def _asked(options: SourceOptions, topics: Iterable[str]) -> "dict[str, KnownSchema | None]":
    with in_one_line():
        return known_schemas(options.connection, topics, refresh=True)
