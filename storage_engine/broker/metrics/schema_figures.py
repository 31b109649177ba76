"""Reads for a scrape what a broker knows of a registry's schemas."""

from collections.abc import Iterator

from storage_engine.broker.metrics.exposition import Samples
from storage_engine.broker.schemas.schemas_log import SchemasLog
from storage_engine.broker.schemas.writers import Writers


class SchemaFigures:
    """All are 0 until a client sends or asks for records of Avro."""

    def __init__(self, schemas: SchemasLog, writers: Writers) -> None:
        self._schemas = schemas
        self._writers = writers

    def read(self, samples: Samples) -> Iterator[None]:
        samples.add("headrace_schemas_known", self._schemas.state.ids)
        samples.add("headrace_schemas_next_offset", self._schemas.next_offset)
        samples.add("headrace_schemas_looks_total", self._schemas.looks)
        samples.add("headrace_schemas_unknown_ids_total", self._writers.unknown_ids)
        yield
