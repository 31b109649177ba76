"""The limit of one batch of a foreign client: few bytes can be many values."""

from storage_engine.core.errors import RecordTooLargeError

MAX_CELLS = 32 << 20
"""The most values of one batch, nulls and nested ones included: `{}` is short, but has all
columns."""


def too_large(what: str) -> RecordTooLargeError:
    """Return the error for a batch that has `what`."""
    return RecordTooLargeError(f"a record batch has {what}: send smaller batches")


def too_many_cells() -> RecordTooLargeError:
    """Return the error for a batch of more than MAX_CELLS values."""
    return too_large(f"more than {MAX_CELLS} values, the missing ones included")
