"""The port of all that reads values of one Avro type, for many rows at once."""

from abc import ABC, abstractmethod

import pyarrow as pa

from storage_engine.protocol.avro.one_value import Steps
from storage_engine.protocol.avro.record_bytes import Rows
from storage_engine.protocol.records.varints import Ints, Mask


class ValueReader(ABC):
    """Reads the values of an Avro type."""

    kind: pa.DataType
    """The type of the arrays that are read."""
    values: int = 1
    """How many values of Arrow one value makes, also a null."""
    least: int = 1
    """The fewest bytes of a value."""
    size: int | None = None
    """The bytes of each value, where all have the same."""
    varints: int | None = None
    """The number of varints of each value, where it has nothing else."""

    @abstractmethod
    def skip(self, rows: Rows, places: Ints) -> Ints:
        """Return the places behind the values."""

    def step(self, body: bytes, at: int, steps: Steps) -> int:
        """Return the place behind one value, which may be beyond the record. NoValueError or
        IndexError where there is none."""
        assert self.size is not None
        return at + self.size

    @abstractmethod
    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        """Return the values, and the places behind them. What is not `valid` is null."""
