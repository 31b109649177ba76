"""The error for rows that can't become a batch, with the row, the column and the value."""

from storage_engine.core.errors import InvalidRecordError
from storage_engine.core.printable import printable

SHOWN_CHARACTERS = 80
"""The most characters of a value that an error shows."""


class RowsDoNotFitError(InvalidRecordError):
    """Rows that don't fit their topic's schema."""

    def __init__(self, message: str, *, column: str = "", row: int = -1) -> None:
        """`row` counts from 0 within the rows that were given; -1 when none is to blame, as for a
        column of another type."""
        super().__init__(message, records=() if row < 0 else [(row, message)])
        self.column = column
        self.row = row


def shown(value: str | bytes | None) -> str:
    """Return a value as an error shows it: on one line, and shortened."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    text = value if isinstance(value, str) else repr(value)
    if len(text) > SHOWN_CHARACTERS:
        text = f"{text[: SHOWN_CHARACTERS - 3]}..."
    return printable(text)
