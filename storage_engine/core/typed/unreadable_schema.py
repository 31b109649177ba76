"""Stands for the schema of a typed topic that can't be read here: it was written by a later version
of Headrace, or by hand. Such a topic must not be taken for one without a schema, as its log would
get records that are no rows."""

from dataclasses import dataclass
from typing import NoReturn

from storage_engine.core.typed.topic_schema import (
    SchemaVersion,
    TopicSchema,
    UnknownSchemaVersionError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableSchema(TopicSchema):
    """It has no version and no key: whoever asks for one gets UnknownSchemaVersionError, and
    nothing is compacted by it."""

    key: tuple[int, ...] = ()
    versions: tuple[SchemaVersion, ...] = ()
    reason: str

    @property
    def latest(self) -> SchemaVersion:
        self._refuse()

    def version(self, number: int) -> SchemaVersion:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnknownSchemaVersionError(
            f"the topic's schema can't be read on this broker: {self.reason}; mend the setting, or"
            " upgrade the broker"
        )
