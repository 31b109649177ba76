"""The conditions of a search: a record matches if it meets all that are given.

Whole columns are compared, except for a field of JSON: there each value is parsed, within the
search's time limit. Where a registry's schemas are read by, keys and values match by their JSON or
by their bytes. Regular expressions are RE2's, whose time is linear in the text. Source:
R-CON8.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace_console.given import Params, bad
from storage_engine.protocol.records.record_decoder import DecodedRecords

Mask = npt.NDArray[np.bool_]
MOST_JSON_BYTES = 1 << 20
"""A larger value is not parsed, so no condition on a field matches it."""

TextsOf = Callable[[pa.Array], pa.Array]

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSearch:
    """The conditions of a search; None: no such condition."""

    key: str | None = None
    value: str | None = None
    is_regex: bool = False
    header: str | None = None
    header_part: str | None = None
    path: tuple[str | int, ...] | None = None
    equals: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @classmethod
    def parse(cls, params: Params, *, since_ms: int | None) -> "RecordSearch":
        """Read the conditions from parameters; ConsoleError bad_request for wrong ones."""
        header = params.text("header")
        name, found, part = (header or "").partition("=")
        path = params.text("path")
        search = cls(
            key=params.text("key"),
            value=params.text("value"),
            is_regex=params.flag("regex"),
            header=name or None,
            header_part=part if found else None,
            path=None if path is None else json_path(path),
            equals=params.text("equals"),
            since_ms=since_ms,
            until_ms=params.integer("until", None),
        )
        if search.path is not None and search.equals is None:
            raise bad("parameter 'path' needs 'equals', the value of the field")
        if search.is_regex:
            for pattern in (search.key, search.value):
                if pattern is not None:
                    _try(pattern)
        return search

    @property
    def reads_texts(self) -> bool:
        """Whether keys or values are compared."""
        return self.key is not None or self.value is not None or self.path is not None

    @property
    def is_everything(self) -> bool:
        """Whether every record matches, except for conditions on its time."""
        return self.key is None and self.value is None and self.header is None and self.path is None

    def mask(
        self,
        records: DecodedRecords,
        is_over: Callable[[], bool],
        texts_of: TextsOf | None = None,
    ) -> Mask:
        """Return which records match; after `is_over` no further fields are compared. `texts_of`:
        reads keys or values as JSON; null where they can't be."""
        found = np.ones(len(records), dtype=np.bool_)
        if self.until_ms is not None:
            found &= records.timestamps_ms.to_numpy() < self.until_ms
        if self.since_ms is not None:
            found &= records.timestamps_ms.to_numpy() >= self.since_ms
        if self.key is not None:
            has = self._has(records.keys, self.key)
            if texts_of is not None:
                has |= self._has(texts_of(records.keys), self.key)
            found &= has
        values = records.values
        read = None
        if texts_of is not None and (self.value is not None or self.path is not None):
            read = texts_of(values)
        if self.value is not None:
            has = self._has(values, self.value)
            if read is not None:
                has |= self._has(read, self.value)
            found &= has
        if self.header is not None:
            found &= self._has_header(records.headers)
        if self.path is not None:
            texts = values if read is None else pc.coalesce(read, values)
            found &= self._has_field(texts, found, is_over)
        return found

    def _has(self, column: pa.Array, wanted: str) -> Mask:
        if self.is_regex:
            found = pc.match_substring_regex(column, wanted)
        else:
            found = pc.match_substring(column, wanted)
        return _true(found)

    def _has_header(self, headers: pa.Array) -> Mask:
        entries = headers.flatten()
        found = _true(pc.equal(entries.field("key"), self.header))
        if self.header_part is not None:
            found &= _true(pc.match_substring(entries.field("value"), self.header_part))
        parents = pc.list_parent_indices(headers).to_numpy()
        mask = np.zeros(len(headers), dtype=np.bool_)
        mask[parents[found]] = True
        return mask

    def _has_field(self, values: pa.Array, among: Mask, is_over: Callable[[], bool]) -> Mask:
        assert self.path is not None and self.equals is not None
        mask = np.zeros(len(values), dtype=np.bool_)
        for count, place in enumerate(np.flatnonzero(among).tolist()):
            if count % 256 == 0 and is_over():
                break
            data = values[place].as_py()
            if data is not None and len(data) <= MOST_JSON_BYTES:
                mask[place] = has_field(data, self.path, self.equals)
        return mask


def _true(column: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _try(pattern: str) -> None:
    try:
        pc.match_substring_regex(pa.array([b""], pa.binary()), pattern)
    except pa.ArrowInvalid as error:
        text = " ".join(str(error).split())
        raise bad(f"'{pattern}' is not a regular expression: {text}") from None


def json_path(text: str) -> tuple[str | int, ...]:
    """Return the steps of a path such as `$.a.b[0]['c d']`; a name alone is a field."""
    rest = text if text.startswith("$") else f"$.{text}"
    at = 1
    steps: list[str | int] = []
    while at < len(rest):
        step = _STEP.match(rest, at)
        if step is None or len(steps) >= 20:
            raise bad(f"parameter 'path' must be like $.name or $.list[0].name, not '{text}'")
        name, number, quoted = step.groups()
        steps.append(int(number) if number is not None else name if name is not None else quoted)
        at = step.end()
    if not steps:
        raise bad("parameter 'path' must name a field, as in $.name")
    return tuple(steps)


def has_field(data: bytes, path: tuple[str | int, ...], equals: str) -> bool:
    """Whether the field of a JSON value equals this text, or a number or constant written so."""
    try:
        found = json.loads(data)
        for step in path:
            found = found[step]
    except (ValueError, RecursionError, LookupError, TypeError):
        return False
    if isinstance(found, str):
        return found == equals
    if isinstance(found, bool) or found is None:
        return json.dumps(found) == equals
    if isinstance(found, int | float):
        return str(found) == equals or _number(equals) == found
    return False


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
