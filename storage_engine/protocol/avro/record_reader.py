"""Readers of records and unions."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from storage_engine.protocol.avro.arrays import bits
from storage_engine.protocol.avro.one_value import NoValueError, Steps, number_at
from storage_engine.protocol.avro.record_bytes import Rows
from storage_engine.protocol.avro.value_reader import ValueReader
from storage_engine.protocol.records.arrow_kernels import as_type, kernel
from storage_engine.protocol.records.varints import Ints, Mask

_NO_BRANCH_BITS = np.uint8(0xFF - 2)
"""The bits that no byte of one of two branches has."""


class _Gap(ValueReader):
    """Skips the same number of bytes in each row."""

    def __init__(self, size: int) -> None:
        self.size = self._bytes = size

    def skip(self, rows: Rows, places: Ints) -> Ints:
        return places + self._bytes

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        raise NotImplementedError


class RecordReader(ValueReader):
    """Reads records as structs. `wanted` are the places of the fields that are read: the struct has
    these, in the record's order."""

    def __init__(
        self,
        kind: pa.StructType,
        fields: Sequence[ValueReader],
        wanted: frozenset[int] | None = None,
    ) -> None:
        self.kind = kind
        self.values = 1 + sum(each.values for each in fields)
        self.least = sum(each.least for each in fields)
        sizes = [each.size for each in fields if each.size is not None]
        if len(sizes) == len(fields):
            self.size = sum(sizes)
        varints = [each.varints for each in fields if each.varints is not None]
        if len(varints) == len(fields) and fields:
            self.varints = sum(varints)
        every = frozenset(range(len(fields)))
        self._steps = _steps(fields, every if wanted is None else wanted)
        self._skips = [each for each, _ in _steps(fields, frozenset())]

    def skip(self, rows: Rows, places: Ints) -> Ints:
        for each in self._skips:
            places = each.skip(rows, places)
        return places

    def step(self, body: bytes, at: int, steps: Steps) -> int:
        steps.left -= len(self._skips)
        for each in self._skips:
            at = each.step(body, at, steps)
        return at

    def columns(self, rows: Rows, places: Ints) -> tuple[list[pa.Array], Ints]:
        """Return the wanted fields, and the places behind the records."""
        found = []
        for each, wanted in self._steps:
            if wanted:
                array, places = each.read(rows, places, None)
                found.append(array)
            else:
                places = each.skip(rows, places)
        return found, places

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        children, after = self.columns(rows, places)
        array = pa.Array.from_buffers(self.kind, len(rows), [bits(valid)], children=children)
        return array, after


def _steps(fields: Sequence[ValueReader], wanted: frozenset[int]) -> list[tuple[ValueReader, bool]]:
    """Return what is read and what is skipped, in order; skips of known sizes are joined."""
    steps: list[tuple[ValueReader, bool]] = []
    gap = 0
    for number, each in enumerate(fields):
        if number not in wanted and each.size is not None:
            gap += each.size
            continue
        if gap:
            steps.append((_Gap(gap), False))
            gap = 0
        steps.append((each, number in wanted))
    if gap:
        steps.append((_Gap(gap), False))
    return steps


class NullableReader(ValueReader):
    """Reads a union of one type, with null or without."""

    def __init__(self, inner: ValueReader, *, null_branch: int | None) -> None:
        self.kind = inner.kind
        self.values = inner.values
        self._inner = inner
        self._count, self._null = (1, -1) if null_branch is None else (2, null_branch)
        self._present_byte = 2 if null_branch == 0 else 0
        """The branch of the type, as it is written; that of null is the other of 0 and 2."""

    def skip(self, rows: Rows, places: Ints) -> Ints:
        present, after = self._present(rows, places)
        if present is None:
            return self._inner.skip(rows, after)
        if self._inner.size is not None:
            behind: Ints = after + present * self._inner.size
            return behind
        if not np.count_nonzero(present):
            return after
        ends = self._inner.skip(rows, np.where(present, after, rows.source.zeros))
        return np.where(present, ends, after)

    def step(self, body: bytes, at: int, steps: Steps) -> int:
        branch, at = number_at(body, at)
        if not 0 <= branch < self._count:
            raise NoValueError
        return at if branch == self._null else self._inner.step(body, at, steps)

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        present, after = self._present(rows, places)
        if present is None:
            return self._inner.read(rows, after, valid)
        if not np.count_nonzero(present):
            return pa.nulls(len(rows), self.kind), after
        starts = np.where(present, after, rows.source.zeros)
        array, ends = self._inner.read(rows, starts, _both(present, valid))
        return array, np.where(present, ends, after)

    def _present(self, rows: Rows, places: Ints) -> tuple[Mask | None, Ints]:
        """Return which rows are not null, None when all are, and the places behind the branches."""
        found = rows.bytes_at(places)
        present = found == self._present_byte
        if np.count_nonzero(present) == len(present):
            return None, places + 1
        if self._count == 1 or np.count_nonzero(found & _NO_BRANCH_BITS):
            branches, after = _branches(rows, places, self._count)
            return branches != self._null, after
        return present, places + 1


class UnionReader(ValueReader):
    """Reads a union of several types as a struct with a member for each, of which one has a value.
    Null, if it is one of them, has no member: there the struct is null."""

    def __init__(self, kind: pa.DataType, branches: Sequence[ValueReader | None]) -> None:
        """`branches`: None for null."""
        self.kind = kind
        members = [each for each in branches if each is not None]
        self.values = 1 + sum(each.values for each in members)
        self._branches = branches

    def skip(self, rows: Rows, places: Ints) -> Ints:
        branches, after = _branches(rows, places, len(self._branches))
        for number, each in enumerate(self._branches):
            chosen = np.flatnonzero(branches == number)
            if each is not None and len(chosen):
                after[chosen] = each.skip(rows.some(chosen), after[chosen])
        return after

    def step(self, body: bytes, at: int, steps: Steps) -> int:
        branch, at = number_at(body, at)
        if not 0 <= branch < len(self._branches):
            raise NoValueError
        chosen = self._branches[branch]
        return at if chosen is None else chosen.step(body, at, steps)

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        branches, after = _branches(rows, places, len(self._branches))
        ends = after
        members = []
        for number, each in enumerate(self._branches):
            chosen = branches == number
            if each is None:
                valid = _both(~chosen, valid)
            elif chosen.any():
                starts = np.where(chosen, after, rows.source.zeros)
                array, stops = each.read(rows, starts, chosen)
                members.append(array)
                ends = np.where(chosen, stops, ends)
            else:
                members.append(pa.nulls(len(rows), each.kind))
        return self._joined(members, len(rows), valid), ends

    def _joined(self, members: list[pa.Array], count: int, valid: Mask | None) -> pa.Array:
        return pa.Array.from_buffers(self.kind, count, [bits(valid)], children=members)


class WidenedReader(UnionReader):
    """Reads a union of int and long, or of float and double, as numbers of the wider type."""

    def _joined(self, members: list[pa.Array], count: int, valid: Mask | None) -> pa.Array:
        numbers = kernel("coalesce", *(as_type(each, self.kind) for each in members))
        if valid is None:
            return numbers
        return pa.Array.from_buffers(self.kind, count, [bits(valid), numbers.buffers()[1]])


def _both(one: Mask, other: Mask | None) -> Mask:
    return one if other is None else one & other


def _branches(rows: Rows, places: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the numbers of the branches. Where there is no such branch, it is the first, and the
    row is lost."""
    numbers, after = rows.varints(places)
    wrong = (numbers < 0) | (numbers >= count)
    if np.count_nonzero(wrong):
        numbers[wrong] = 0
        after = rows.lost(after, wrong)
    return numbers, after
