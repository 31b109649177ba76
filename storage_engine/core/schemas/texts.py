"""A schema as somebody wrote it: its language, its text, and the schemas that it refers to."""

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

from storage_engine.core.schemas.compared import Side


class SchemaType(enum.Enum):
    """The languages."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class Reference:
    """`name` is what the text says; it stands for a version of a subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A text and what it refers to."""

    schema_type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


class ParsedSchema(ABC):
    """A schema that has been read. Two of one language are the same when their `canonical` texts
    and their references are the same."""

    @property
    @abstractmethod
    def schema_type(self) -> SchemaType: ...

    @property
    @abstractmethod
    def canonical(self) -> str:
        """The text that a registry keeps and answers."""

    @property
    @abstractmethod
    def normalized(self) -> str:
        """The same, without what has no meaning."""

    @abstractmethod
    def misfits(self, writer: Self, side: Side) -> list[str]:
        """Return why a reader of this schema can't read data of the other, a line for each reason.
        Both are of one language."""

    @property
    @abstractmethod
    def record_name(self) -> str | None:
        """The name of the record that the schema is of; None: it has none."""
