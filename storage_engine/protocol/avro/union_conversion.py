"""Conversions of unions: which of the writer's branches becomes which of the reader's.

The columns of a union have its branches as members of a struct, or, where there is one beside null,
as themselves.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from storage_engine.protocol.avro.arrays import bits, validity
from storage_engine.protocol.avro.conversion import Conversion, Converted, Misfits
from storage_engine.protocol.records.arrow_kernels import as_type, kernel
from storage_engine.protocol.records.varints import Mask


class Branch(NamedTuple):
    """A branch of the writer that is not null."""

    target: int | None
    """The member that it becomes among those of the reader's; None: the reader has none for it."""
    conversion: Conversion
    name: str


class UnionConversion:
    """Converts values that are a union for the writer, the reader or both."""

    def __init__(
        self,
        kind: pa.DataType,
        branches: Sequence[Branch],
        members: Sequence[pa.DataType],
        *,
        null_fits: bool,
    ) -> None:
        """`kind` is the type of the reader's arrays, and `members` those of its branches that are
        not null, if there are several; `branches` are all of the writer's that are not null."""
        self._kind = kind
        self._branches = branches
        self._members = members
        self._null_fits = null_fits

    def __call__(self, array: pa.Array) -> Converted:
        valid = validity(array)
        if valid is None:
            valid = np.ones(len(array), np.bool_)
        misfits: list[Misfits] = []
        if not self._null_fits and not valid.all():
            misfits.append(Misfits(~valid, "is null, which the reader's type is not"))
        found: list[list[pa.Array]] = [[] for _ in self._members]
        for number, branch in enumerate(self._branches):
            values, chosen = self._values(array, number, valid)
            if branch.target is None:
                if chosen.any():
                    what = f"is {branch.name}, which the reader's type is not"
                    misfits.append(Misfits(chosen, what))
                continue
            if not chosen.any():
                continue
            converted, wrong = branch.conversion(values)
            misfits += [Misfits(rows & chosen, reason) for rows, reason in wrong]
            found[branch.target].append(converted)
        return self._joined(found, len(array), valid), misfits

    def _values(self, array: pa.Array, number: int, valid: Mask) -> tuple[pa.Array, Mask]:
        if len(self._branches) == 1:
            return array, valid
        values = array.field(number)
        own = validity(values)
        return values, valid if own is None else own & valid

    def _joined(self, found: list[list[pa.Array]], count: int, valid: Mask) -> pa.Array:
        arrays = [
            _first_of(each, kind, count) for each, kind in zip(found, self._members, strict=True)
        ]
        if not arrays:
            return pa.nulls(count, self._kind)
        if len(arrays) == 1:
            return arrays[0]
        if not pa.types.is_struct(self._kind):
            return kernel("coalesce", *(as_type(each, self._kind) for each in arrays))
        chosen = np.zeros(count, np.bool_)
        for each in arrays:
            own = validity(each)
            chosen |= True if own is None else own
        return pa.Array.from_buffers(self._kind, count, [bits(chosen & valid)], children=arrays)


def _first_of(arrays: list[pa.Array], kind: pa.DataType, count: int) -> pa.Array:
    """Return the value of that array that has one."""
    if not arrays:
        return pa.nulls(count, kind)
    return arrays[0] if len(arrays) == 1 else kernel("coalesce", *arrays)
