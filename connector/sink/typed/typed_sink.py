"""The topic that typed rows go to, as the driver found it. It is pickled into tasks, which compare
the topic's id before they write.
"""

from dataclasses import dataclass
from uuid import UUID

from storage_engine.core.typed.topic_schema import SchemaColumn, SchemaVersion, TopicSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedSink:
    """The topic, and the version of its schema that rows are written in."""

    topic: str
    topic_id: UUID
    schema: TopicSchema
    version_number: int

    @property
    def version(self) -> SchemaVersion:
        return self.schema.version(self.version_number)

    @property
    def required(self) -> tuple[SchemaColumn, ...]:
        """The columns that have no null."""
        return tuple(each for each in self.version.visible if not each.nullable)
