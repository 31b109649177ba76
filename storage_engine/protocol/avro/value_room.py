"""How many values of lists a decoding may make: few bytes can be many, as nulls are."""

from storage_engine.core.errors import RecordTooLargeError


class ValueRoom:
    """Room for so many values."""

    def __init__(self, values: int) -> None:
        self._most = self.left = values

    def take(self, values: int) -> None:
        """Take room, before any memory is taken; RecordTooLargeError when there is not enough."""
        self.left -= values
        if self.left < 0:
            raise RecordTooLargeError(
                f"lists and maps of these records have more than {self._most} values: send smaller"
                " batches"
            )
