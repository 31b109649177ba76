"""Prepares JSON for Arrow's parser, which reads neither maps as objects nor NaN as text.

Where a schema has maps whose keys are strings, their objects become arrays of {"key": ..., "value":
...}; and "NaN", "Infinity" and "-Infinity" lose their quotes where a number is due, since Arrow
reads the bare words. To find these places, the text is taken apart into strings, braces, brackets,
colons and commas, level by level, by numpy for all records at once.

What is not JSON stays so: the parser behind this is to refuse it, and text that this module can't
make sense of is left as it is.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.core.typed.column_types import (
    ArrayColumn,
    ColumnType,
    FloatColumn,
    MapColumn,
    StringColumn,
    StructColumn,
    StructColumnField,
)
from storage_engine.protocol.records.arrow_binary import gather
from storage_engine.protocol.records.arrow_kernels import kernel
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.arrays.kernel_options import SetLookupOptions
from storage_engine.protocol.typed.nested_arrays import binary_values, null_mask

Text = npt.NDArray[np.uint8]

_MOST_LEVELS = 40
"""Types are nested at most 16 deep; a map has two levels, and the record and its frame one each."""

_QUOTE, _BACKSLASH, _COLON, _COMMA = b'"'[0], b"\\"[0], b":"[0], b","[0]
_OPENINGS = np.frombuffer(b"{[", np.uint8)
_CLOSINGS = np.frombuffer(b"}]", np.uint8)
_BRACE, _END_BRACE, _BRACKET, _END_BRACKET = b"{}[]"
_SPACE = b" "[0]

_ENTRY, _VALUE, _END = b'{"key":', b'"value":', b"}"

_NO_NUMBERS = (b"NaN", b"Infinity", b"-Infinity")
NO_NUMBER_TEXTS = tuple(b'"%s"' % word for word in _NO_NUMBERS)

_LEAF, _FLOAT, _STRUCT, _LIST, _MAP = range(5)


class UnreadableJsonError(ValueError):
    """The text is no JSON, or nothing that a schema can have."""


@dataclass(slots=True)
class JsonShape:
    """The types of a record as a table: which type is inside which."""

    kinds: list[int] = field(default_factory=list)
    inner: list[int] = field(default_factory=list)
    """The type of a list's elements or a map's values."""
    names: dict[bytes, int] = field(default_factory=dict)
    """A number for each name of a field, in each way in which it may be written."""
    fields: dict[tuple[int, int], int] = field(default_factory=dict)
    """The type of a struct's field, by the struct's type and the number of the name."""
    name_count: int = 0

    @classmethod
    def of(cls, column_type: ColumnType) -> "JsonShape":
        shape = cls()
        shape._add(column_type)
        return shape

    @property
    def has_maps(self) -> bool:
        return _MAP in self.kinds

    @property
    def has_floats(self) -> bool:
        return _FLOAT in self.kinds

    def table(self) -> Ints:
        """Return the fields as a matrix of types by types and names; -1 for no field."""
        found = np.full((len(self.kinds), self.name_count + 1), -1, np.int64)
        for (struct, name), inside in self.fields.items():
            found[struct, name] = inside
        return found

    def _add(self, column_type: ColumnType) -> int:
        number = len(self.kinds)
        self.kinds.append(_LEAF)
        self.inner.append(-1)
        match column_type:
            case FloatColumn():
                self.kinds[number] = _FLOAT
            case ArrayColumn(element, _):
                self.kinds[number] = _LIST
                self.inner[number] = self._add(element)
            case MapColumn(StringColumn(), value, _):
                self.kinds[number] = _MAP
                self.inner[number] = self._add(value)
            case MapColumn(key, value, _):
                self.kinds[number] = _LIST
                entry = (StructColumnField("key", key), StructColumnField("value", value))
                self.inner[number] = self._add(StructColumn(entry))
            case StructColumn(fields):
                self.kinds[number] = _STRUCT
                for each in fields:
                    inside = self._add(each.type)
                    self.fields[number, self._name(each.name)] = inside
            case _:
                pass
        return number

    def _name(self, name: str) -> int:
        escaped = json.dumps(name)[1:-1]
        plain = json.dumps(name, ensure_ascii=False)[1:-1]
        number = self.names.get(plain.encode())
        if number is None:
            number = self.name_count
            self.name_count += 1
            upper = _upper_escapes(escaped)
            for form in (plain, escaped, upper):
                self.names[form.encode()] = number
        return number


def _upper_escapes(escaped: str) -> str:
    """Write the digits of escapes as capitals, which some clients do."""
    parts = escaped.split("\\u")
    return parts[0] + "".join(f"\\u{part[:4].upper()}{part[4:]}" for part in parts[1:])


def prepared(text: Text, shape: JsonShape) -> Text:
    """Return the text for Arrow's parser; `text` itself, changed in place, when nothing is to be
    inserted. UnreadableJsonError for text that can't be JSON of this shape."""
    return _Edits(_Tokens(text), shape).applied()


class _Tokens:
    """The strings of a text, and the signs outside of them, with the depth of each."""

    def __init__(self, text: Text) -> None:
        self.text = text
        quotes = self._quotes()
        if len(quotes) % 2:
            raise UnreadableJsonError("a string does not end")
        self.starts, self.ends = quotes[0::2], quotes[1::2]
        is_sign = np.zeros(256, np.bool_)
        is_sign[np.frombuffer(b"{}[]:,", np.uint8)] = True
        signs = np.flatnonzero(is_sign[text])
        # Even: as many quotes before it as end a string.
        self.signs = signs[np.searchsorted(quotes, signs) % 2 == 0]
        self.kinds = text[self.signs]
        opens, closes = np.isin(self.kinds, _OPENINGS), np.isin(self.kinds, _CLOSINGS)
        depths = np.cumsum(opens.astype(np.int64) - closes)
        if len(depths) and (depths.min() < 0 or depths[-1] or depths.max() > _MOST_LEVELS):
            raise UnreadableJsonError("braces and brackets don't match, or are nested too deep")
        self.opens, self.closes = opens, closes
        self.depths = depths + closes
        """The depth of what is inside, for those that open and close."""

    def _quotes(self) -> Ints:
        text = self.text
        quotes = np.flatnonzero(text == _QUOTE)
        slashes = np.flatnonzero(text == _BACKSLASH)
        if not len(slashes) or not len(quotes):
            return quotes
        # How many backslashes stand right before a quote: an odd number escapes it.
        begins = np.ones(len(slashes), np.bool_)
        begins[1:] = np.diff(slashes) != 1
        runs = np.maximum.accumulate(np.where(begins, np.arange(len(slashes)), 0))
        last = np.searchsorted(slashes, quotes) - 1
        near = (last >= 0) & (slashes[np.maximum(last, 0)] == quotes - 1)
        count = np.where(near, last - runs[np.maximum(last, 0)] + 1, 0)
        unescaped: Ints = quotes[count % 2 == 0]
        return unescaped


class _Edits:
    """What is to be changed, found level by level from the outside."""

    def __init__(self, tokens: _Tokens, shape: JsonShape) -> None:
        self._tokens = tokens
        self._shape = shape
        self._kinds = np.array(shape.kinds, np.int64)
        self._inner = np.array(shape.inner, np.int64)
        self._table = shape.table()
        self._inserted: list[tuple[Ints, bytes]] = []
        self._brackets: list[tuple[Ints, int]] = []
        self._blanks: list[Ints] = []

    def applied(self) -> Text:
        """Return the text with all changes."""
        tokens = self._tokens
        words = self._word_places() if self._shape.has_floats else np.zeros(0, np.int64)
        word_depths = self._depths_at(words)
        # Outside of all: one record after the other.
        nodes = np.zeros(int((tokens.opens & (tokens.depths == 1)).sum()), np.int64)
        for depth in range(1, int(tokens.depths.max(initial=0)) + 1):
            nodes = self._level(depth, nodes, words[word_depths == depth])
        text = tokens.text
        for places, sign in self._brackets:
            text[places] = sign
        for places in self._blanks:
            text[places] = _SPACE
        if not self._inserted:
            return text
        at = np.concatenate([np.repeat(places, len(data)) for places, data in self._inserted])
        data = np.concatenate(
            [np.tile(np.frombuffer(data, np.uint8), len(p)) for p, data in self._inserted]
        )
        return np.insert(text, at, data)

    def _level(self, depth: int, nodes: Ints, words: Ints) -> Ints:
        """Handle what is inside the containers of this depth, whose types are `nodes`; return the
        types of the containers in them."""
        tokens = self._tokens
        here = tokens.depths == depth
        begins = tokens.signs[here & tokens.opens]
        ends = tokens.signs[here & tokens.closes]
        colons = tokens.signs[here & (tokens.kinds == _COLON)]
        commas = tokens.signs[here & (tokens.kinds == _COMMA)]
        is_object = tokens.text[begins] == _BRACE
        if (is_object != (tokens.text[ends] == _END_BRACE)).any():
            raise UnreadableJsonError("a brace is closed by a bracket")
        kinds = np.where(nodes >= 0, self._kinds[nodes], _LEAF)
        is_map = is_object & (kinds == _MAP)
        inner = np.where((is_map | (~is_object & (kinds == _LIST))), self._inner[nodes], -1)
        is_struct = is_object & (kinds == _STRUCT)
        names = _Names(tokens, colons)
        fields = self._fields(names, nodes, is_struct, begins, colons)
        if is_map.any():
            self._open_maps(begins, ends, colons, commas, is_map, names)

        def resolved(places: Ints) -> Ints:
            """The types of the values that begin at these places."""
            owner = np.searchsorted(begins, places) - 1
            if not len(colons):
                return np.where(is_struct[owner], -1, inner[owner])
            colon = np.searchsorted(colons, places) - 1
            known = (colon >= 0) & (colons[np.maximum(colon, 0)] > begins[owner])
            field = np.where(known, fields[np.maximum(colon, 0)], -1)
            return np.where(is_struct[owner], field, inner[owner])

        # A name is no value.
        words = words[~np.isin(words, names.starts)]
        if len(words):
            found = resolved(words)
            floats = words[(found >= 0) & (self._kinds[np.maximum(found, 0)] == _FLOAT)]
            closing = tokens.ends[np.searchsorted(tokens.starts, floats)]
            self._blanks += [floats, closing]
        return resolved(tokens.signs[(tokens.depths == depth + 1) & tokens.opens])

    def _fields(
        self, names: "_Names", nodes: Ints, is_struct: Any, begins: Ints, colons: Ints
    ) -> Ints:
        """Return for each colon the type of the field whose name stands before it; -1 for none."""
        fields = np.full(len(colons), -1, np.int64)
        owner = np.searchsorted(begins, colons) - 1
        wanted = np.flatnonzero(is_struct[owner]) if len(colons) else np.zeros(0, np.int64)
        if len(wanted):
            number = names.numbers(wanted, self._shape)
            found = self._table[nodes[owner[wanted]], np.maximum(number, 0)]
            fields[wanted] = np.where(number >= 0, found, -1)
        return fields

    def _open_maps(
        self,
        begins: Ints,
        ends: Ints,
        colons: Ints,
        commas: Ints,
        is_map: Any,
        names: "_Names",
    ) -> None:
        """Make arrays of the objects that are maps."""
        inside = np.flatnonzero(is_map[np.searchsorted(begins, colons) - 1])
        counts = np.zeros(len(begins), np.int64)
        np.add.at(counts, np.searchsorted(begins, colons[inside]) - 1, 1)
        empty = is_map & (counts == 0)
        self._check_empty(begins[empty], ends[empty])
        comma_in_map = commas[is_map[np.searchsorted(begins, commas) - 1]]
        filled = ends[is_map & (counts > 0)]
        self._brackets += [
            (begins[is_map], _BRACKET),
            (ends[is_map], _END_BRACKET),
            (colons[inside], _COMMA),
        ]
        self._inserted += [
            (names.starts[inside], _ENTRY),
            (colons[inside] + 1, _VALUE),
            (comma_in_map, _END),
            (filled, _END),
        ]

    def _check_empty(self, begins: Ints, ends: Ints) -> None:
        """An object without a colon has nothing inside, or is no JSON; as an array it might be."""
        tokens = self._tokens
        for positions in (tokens.signs, tokens.starts):
            if (np.searchsorted(positions, begins + 1) != np.searchsorted(positions, ends)).any():
                raise UnreadableJsonError("a member of an object has no name")

    def _word_places(self) -> Ints:
        """Return where strings begin that are NaN, Infinity or -Infinity."""
        tokens = self._tokens
        lengths = tokens.ends - tokens.starts - 1
        likely = np.flatnonzero(np.isin(lengths, [len(word) for word in _NO_NUMBERS]))
        if not len(likely):
            return likely
        starts = tokens.starts[likely]
        found = _looked_up(tokens.text, starts + 1, lengths[likely], _NO_NUMBERS)
        return starts[found >= 0]

    def _depths_at(self, places: Ints) -> Ints:
        """Return the depth at which each of these values stands."""
        tokens = self._tokens
        before = np.searchsorted(tokens.signs, places) - 1
        if not len(places) or (before < 0).any():
            return np.zeros(len(places), np.int64)
        depths: Ints = tokens.depths[before] - tokens.closes[before]
        return depths


class _Names:
    """The names before some colons."""

    def __init__(self, tokens: _Tokens, colons: Ints) -> None:
        self._tokens = tokens
        self._string = np.searchsorted(tokens.ends, colons) - 1
        if len(colons) and (
            self._string.min() < 0
            or (
                # Another sign between name and colon.
                np.searchsorted(tokens.signs, tokens.ends[self._string])
                != np.searchsorted(tokens.signs, colons)
            ).any()
        ):
            raise UnreadableJsonError("a colon stands behind no name")
        self.starts = tokens.starts[self._string]

    def numbers(self, colons: Ints, shape: JsonShape) -> Ints:
        """Return the numbers of the names before these colons; -1 for a name that no field has."""
        tokens = self._tokens
        strings = self._string[colons]
        starts = tokens.starts[strings] + 1
        forms = tuple(shape.names)
        found = _looked_up(tokens.text, starts, tokens.ends[strings] - starts, forms)
        by_form = np.array([*shape.names.values(), -1], np.int64)
        numbers: Ints = by_form[found]
        return numbers


def _looked_up(text: Text, starts: Ints, lengths: Ints, words: tuple[bytes, ...]) -> Ints:
    """Return which of the words stands at each place; -1 for none."""
    found = gather(pa.py_buffer(text), starts, lengths)
    indices = kernel("index_in", found, options=SetLookupOptions(binary_values(words)))
    numbers = np.frombuffer(indices.buffers()[1], np.int32)[indices.offset :][: len(indices)]
    return np.where(null_mask(indices), -1, numbers).astype(np.int64)
