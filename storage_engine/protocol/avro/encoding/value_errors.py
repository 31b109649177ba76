"""The error for a value that a schema can't hold."""


class UnencodableValueError(ValueError):
    """A value of a row does not fit the schema."""

    def __init__(self, row: int, reason: str, path: tuple[str, ...] = ()) -> None:
        """`row` counts from 0; `path` names the fields, from the outermost on."""
        super().__init__(f"field '{'.'.join(path)}': {reason}" if path else reason)
        self.row = row
        self.reason = reason
        self.path = path

    def within(self, name: str) -> "UnencodableValueError":
        """The same error, of a field of the record that is called `name`."""
        return UnencodableValueError(self.row, self.reason, (name, *self.path))

    def at(self, row: int) -> "UnencodableValueError":
        """The same error, of another row."""
        return UnencodableValueError(row, self.reason, self.path)
