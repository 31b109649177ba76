"""Decodes the keys or the values of records: those of one schema id together, by the schema that
they were written in, resolved to the reader's. All rows come back, in their order; one that can't
be decoded is null, with its reason.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from http.client import NOT_FOUND

import numpy as np
import pyarrow as pa

from connector.options.registry_options import RegistryOptions
from connector.registries import NamedAvro, avro_text, registry_errors, registry_for
from storage_engine.client.schema_registry_http import SchemaRegistryError
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.protocol.avro.framing import cut
from storage_engine.protocol.avro.resolve import Resolver
from storage_engine.protocol.records.arrow_kernels import take
from storage_engine.protocol.records.varints import Ints, Mask

MAX_PLANS = 1_000
"""The most writers' schemas that a task keeps a plan for."""


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows with the reader's columns. `errors`: the reason of each row that can't be decoded."""

    batch: pa.RecordBatch
    errors: Mapping[int, str]
    absent: Mask
    """The rows that are null, because their value is, or can't be decoded."""


class RecordDecoder:
    """Decodes to one reader's schema."""

    def __init__(
        self, registry: RegistryOptions, reader: NamedAvro, columns: Collection[str] | None
    ) -> None:
        """`columns`: the reader's fields that are wanted; None: all."""
        self._registry = registry
        self._reader_id = reader.schema_id
        self._reader = reader.text.parsed()
        self._columns = columns
        self._plans: dict[int, Resolver | str] = {}
        self._schema = Resolver(self._reader, self._reader, columns).arrow_schema

    def decode(self, values: pa.Array) -> DecodedRows:
        """The rows of a pa.BinaryArray; nulls stay null. ConnectorError where the registry is
        away."""
        framed = cut(values)
        errors = dict(framed.errors)
        pieces: list[pa.RecordBatch] = []
        places: list[Ints] = []
        groups = dict(_by_id(framed.ids))
        unknown = self._unknown(groups)
        for schema_id, rows in groups.items():
            plan = unknown.get(schema_id) or self._plan(schema_id)
            if isinstance(plan, str):
                errors |= dict.fromkeys(rows.tolist(), plan)
                continue
            found = plan.decode(framed.bodies(rows))
            errors |= {
                int(rows[each.row]): f"schema id {schema_id}: {each.reason}"
                for each in found.damaged
            }
            pieces.append(found.batch)
            places.append(rows)
        absent = framed.ids < 0
        absent[list(errors)] = True
        if len(pieces) == 1 and len(places[0]) == len(values):
            return DecodedRows(pieces[0], errors, absent)
        return DecodedRows(self._in_order(pieces, places, len(values)), errors, absent)

    def _in_order(
        self, pieces: list[pa.RecordBatch], places: list[Ints], count: int
    ) -> pa.RecordBatch:
        """The rows of pieces at their places; null elsewhere."""
        order = np.full(count, -1, np.int64)
        before = 0
        for piece, rows in zip(pieces, places, strict=True):
            order[rows] = np.arange(before, before + piece.num_rows)
            before += piece.num_rows
        valid = pa.py_buffer(np.packbits(order >= 0, bitorder="little"))
        indices = pa.Array.from_buffers(
            pa.int64(), count, [valid, pa.py_buffer(np.maximum(order, 0))]
        )
        empty = pa.RecordBatch.from_arrays(
            [pa.nulls(0, each.type) for each in self._schema], schema=self._schema
        )
        joined = pa.concat_batches([*pieces, empty])
        return pa.RecordBatch.from_arrays(
            [take(column, indices) for column in joined.columns], schema=joined.schema
        )

    def _unknown(self, ids: Collection[int]) -> dict[int, str]:
        """Why records of some ids can't be read, for ids that are not worth a request each."""
        new = [each for each in ids if each not in self._plans and each != self._reader_id]
        if not new:
            return {}
        with registry_errors():
            registry = registry_for(self._registry)
            found = registry.unknown_among(new)
        return {each: _reason(each, registry.unknown(each)) for each in found}

    def _plan(self, schema_id: int) -> Resolver | str:
        """How records of a schema id are read; or why they can't be."""
        plan = self._plans.get(schema_id)
        if plan is not None:
            return plan
        with registry_errors():
            try:
                plan = self._made(schema_id)
            except SchemaRegistryError as error:
                # What is not there is told with each record, as long as the registry's client
                # takes it for unknown; other refusals end the query.
                if error.status != NOT_FOUND:
                    raise
                return _reason(schema_id, error)
        if len(self._plans) >= MAX_PLANS:
            self._plans.pop(next(iter(self._plans)))
        self._plans[schema_id] = plan
        return plan

    def _made(self, schema_id: int) -> Resolver | str:
        if schema_id == self._reader_id:
            return Resolver(self._reader, self._reader, self._columns)
        registry = registry_for(self._registry)
        try:
            writer = avro_text(registry, registry.by_id(schema_id)).parsed()
            return Resolver(writer, self._reader, self._columns)
        except InvalidSchemaError as error:
            return _reason(schema_id, error)


def _reason(schema_id: int, error: Exception) -> str:
    return f"schema id {schema_id}: {' '.join(str(error).split())}"


def _by_id(ids: Ints) -> Iterator[tuple[int, Ints]]:
    """The ids that are there, without -1, and their rows."""
    if len(ids) and ids[0] >= 0 and (ids == ids[0]).all():
        yield int(ids[0]), np.arange(len(ids))
        return
    rows = np.argsort(ids, kind="stable")
    rows = rows[int(np.searchsorted(ids[rows], 0)) :]
    ends = np.flatnonzero(np.diff(ids[rows], append=-1)) + 1
    first = 0
    for end in ends.tolist():
        yield int(ids[rows[first]]), rows[first:end]
        first = end
