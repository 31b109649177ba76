"""Projections of batches that lie in memory, as a log makes them of its files."""

from collections.abc import Iterator

from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.records.record_batch import BatchHeader, iter_headers
from storage_engine.protocol.typed.projection import ProjectedPieces, TypedWant, project_stored


class _InMemory:
    """Batches in memory, whose pieces are views of it."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        return iter_headers(self._view)

    def head(self, position: int, header: BatchHeader) -> memoryview:
        return self._view[position : position + header.size_in_bytes]

    def piece(self, start: int, end: int) -> memoryview:
        return self._view[start:end]


def project(
    view: memoryview, want: TypedWant, schema: TopicSchema, *, limit_bytes: int
) -> ProjectedPieces[memoryview]:
    """Return frames for whole batches in memory, as `project_stored` does."""
    return project_stored(_InMemory(view), want, schema, limit_bytes=limit_bytes)
