"""Keys or values as JSON text, each read by the schema that it was written with.

Rule: every row comes back. One that has the framing (`protocol/avro/framing`) has its schema's id,
and either a text or the reason why it has none; any other has neither.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http.client import NOT_FOUND

import numpy as np
import pyarrow as pa

from storage_engine.client.framed_values.value_texts import ValueTexts, value_texts
from storage_engine.client.schema_registry import SchemaRegistry
from storage_engine.client.schema_registry_http import SchemaRegistryError
from storage_engine.core.errors import DeadlineExceededError, HeadraceError
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.protocol.avro.arrays import texts as array_of_texts
from storage_engine.protocol.avro.framing import Framed, cut
from storage_engine.protocol.records.arrow_kernels import take
from storage_engine.protocol.records.varints import Ints

_PIECE_ROWS = 2_000
_PIECE_BYTES = 1 << 20
"""The bodies that are read before `is_over` is asked again; or one."""
_OVER = "the time of this answer was over"
_TOO_MANY_IDS = "this answer has more than"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """The limits of reading."""

    body_bytes: int = 1 << 30
    """Longer ones are not read."""
    text_chars: int = 256 << 20
    """The most of the texts that are made at once, and of one."""
    new_ids: int = 10_000
    """The most schemas that are asked for in one call."""
    kept_schemas: int = 1_000
    kept_chars: int = 16 << 20
    """The most of the texts of schemas that are kept parsed."""
    away_s: float | None = None
    """How long a registry that gave no answer, or refused one, is not asked again; that is the
    reason of its rows. None: the error is raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonValues:
    """Rows, read."""

    texts: pa.Array
    """A pa.StringArray: a line of JSON each; null where there is none."""
    ids: Ints
    """The schema id of each row; -1 where it has no framing."""
    reasons: dict[int, str]
    """By row."""


class FramedJson:
    """Reads through one registry. Not thread-safe, like a `Cluster`."""

    def __init__(self, registry: SchemaRegistry, bounds: ReadBounds) -> None:
        self._registry = registry
        self._bounds = bounds
        self._kept: OrderedDict[int, tuple[ValueTexts | str, int]] = OrderedDict()
        """With the characters of the schema; a text: why records of the id can't be read."""
        self._kept_chars = 0
        self._away: tuple[str, float] | None = None

    def read(self, values: pa.Array, *, is_over: Callable[[], bool] = lambda: False) -> JsonValues:
        """Read a pa.BinaryArray. After `is_over` no further row is read, and that is its reason.
        SchemaRegistryError and DeadlineExceededError where the bounds say so."""
        framed = cut(values)
        reasons: dict[int, str] = {}
        pieces: list[pa.Array] = []
        order = np.full(len(values), -1, np.int64)
        done = new = 0
        for schema_id in _different(framed.ids):
            rows = np.flatnonzero(framed.ids == schema_id)
            is_new = schema_id not in self._kept
            new += is_new
            reader: ValueTexts | str
            if is_over():
                reader = _OVER
            elif is_new and new > self._bounds.new_ids:
                reader = f"{_TOO_MANY_IDS} {self._bounds.new_ids} ids of schemas that are new here"
            else:
                reader = self._reader(schema_id)
            if isinstance(reader, str):
                reasons |= dict.fromkeys(rows.tolist(), reader)
                continue
            rows = self._short_enough(framed, rows, reasons)
            for some in _pieces(framed.lengths[rows], rows):
                if is_over():
                    reasons |= dict.fromkeys(some.tolist(), _OVER)
                    continue
                for piece in reader.read(framed.bodies(some)):
                    pieces.append(piece.texts)
                    own = some[piece.row : piece.row + len(piece.texts)]
                    order[own] = np.arange(done, done + len(own))
                    done += len(own)
                    for row, reason in piece.reasons.items():
                        reasons[int(some[row])] = reason
        order[list(reasons)] = -1
        return JsonValues(texts=_in_order(pieces, order), ids=framed.ids, reasons=reasons)

    def knows(self, schema_id: int) -> bool:
        """Whether the schema of an id is kept."""
        return schema_id in self._kept

    def _short_enough(self, framed: Framed, rows: Ints, reasons: dict[int, str]) -> Ints:
        most = self._bounds.body_bytes
        is_long = framed.lengths[rows] > most
        for row in rows[is_long].tolist():
            reasons[row] = f"it has {framed.lengths[row]} bytes; at most {most} are decoded here"
        return rows[~is_long]

    def _reader(self, schema_id: int) -> ValueTexts | str:
        """The reader of an id's records, or why there is none."""
        found = self._kept.get(schema_id)
        if found is not None:
            self._kept.move_to_end(schema_id)
            return found[0]
        if self._away is not None and time.monotonic() < self._away[1]:
            return self._away[0]
        chars = 0
        made: ValueTexts | str
        try:
            schema = self._registry.by_id(schema_id)
            chars = len(schema.text)
            made = value_texts(self._registry, schema_id, schema, self._bounds.text_chars)
        except InvalidSchemaError as error:
            made = f"its schema can't be used: {_one_line(error)}"
        except (SchemaRegistryError, DeadlineExceededError) as error:
            if isinstance(error, SchemaRegistryError) and error.status == NOT_FOUND:
                # It may be registered a moment later.
                return _one_line(error)
            if self._bounds.away_s is None:
                raise
            self._away = _one_line(error), time.monotonic() + self._bounds.away_s
            return self._away[0]
        self._keep(schema_id, made, chars)
        return made

    def _keep(self, schema_id: int, made: ValueTexts | str, chars: int) -> None:
        self._kept[schema_id] = made, chars
        self._kept_chars += chars
        while len(self._kept) > 1 and (
            len(self._kept) > self._bounds.kept_schemas
            or self._kept_chars > self._bounds.kept_chars
        ):
            _, (_, other) = self._kept.popitem(last=False)
            self._kept_chars -= other


def _different(ids: Ints) -> list[int]:
    """The ids that are there."""
    return [each for each in np.unique(ids).tolist() if each >= 0]


def _pieces(lengths: Ints, rows: Ints) -> list[Ints]:
    """Rows that are read at once."""
    found, first = [], 0
    ends = np.cumsum(lengths)
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        full = int(np.searchsorted(ends, before + _PIECE_BYTES, side="right"))
        stop = max(first + 1, min(full, first + _PIECE_ROWS))
        found.append(rows[first:stop])
        first = stop
    return found


def _in_order(pieces: list[pa.Array], order: Ints) -> pa.Array:
    valid = pa.py_buffer(np.packbits(order >= 0, bitorder="little"))
    indices = pa.Array.from_buffers(
        pa.int64(), len(order), [valid, pa.py_buffer(np.maximum(order, 0))]
    )
    # At least one, since none is taken of an empty array.
    return take(pa.concat_arrays([*pieces, array_of_texts(("",))]), indices)


def _one_line(error: HeadraceError) -> str:
    return " ".join(str(error).split())
