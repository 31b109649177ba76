"""The bytes of rows that may be in memory, of all tables together: those that were read and are in
no file yet, and what is kept of open files.
"""

BASE_BYTES = 384 << 20
"""The service takes so much beside rows: Python, Arrow, the table library, open files, answers."""

GROUP_BYTES = 16 << 20
"""A table writes a row group once it has so much: large enough for good files, small enough that
many tables find room."""

OPEN_FILE_BYTES = 8 << 20
"""The client of stores keeps so much of a file that is not closed."""


class MemoryBudget:
    """For one thread."""

    def __init__(self, memory_bytes: int) -> None:
        """`memory_bytes`: of the whole process. Half of what is left is for rows: while they are
        encoded they are there twice."""
        self.limit = max(2 * GROUP_BYTES, (memory_bytes - BASE_BYTES) // 2)
        self.table_limit = self.limit // 2
        """The share of one table, so that one whose store hangs leaves room for others."""
        self.taken = 0

    @property
    def is_full(self) -> bool:
        return self.taken >= self.limit

    def take(self, size: int) -> None:
        self.taken += size

    def give(self, size: int) -> None:
        self.taken -= size
        assert self.taken >= 0, "more was given back than taken"
