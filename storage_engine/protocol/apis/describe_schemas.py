"""DescribeSchemas: the schemas of topics, from any broker.

The schema is JSON, as in the setting `headrace.schema`; null for a topic that is not typed. One of
Headrace's own APIs. A broker without it knows no typed topics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.fields import int16, name, names, nullable_string, structs, uuid
from storage_engine.protocol.apis.struct_codec import api

MAX_TOPICS = 100
"""The most topics of one request: a schema may have hundreds of kilobytes."""


@dataclass(slots=True, kw_only=True)
class DescribeSchemasRequest:
    """Names at most MAX_TOPICS topics."""

    topics: Sequence[str] = names()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSchema:
    """The schema of one topic, or the error that prevents reading it."""

    topic: str = name()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    topic_id: UUID = uuid()
    """The id of the topic with this schema: another topic of the name has another id."""
    schema: str | None = nullable_string(default=None)


@dataclass(slots=True, kw_only=True)
class DescribeSchemasResponse:
    """A row for each topic that was named."""

    topics: Sequence[DescribedSchema] = structs(DescribedSchema)


API = api(20_004, DescribeSchemasRequest, DescribeSchemasResponse)
