"""How many values of lists a decoding may make: few bytes can be many, as nulls are."""

from storage_engine.core.errors import RecordTooLargeError

_VALUES_OF_A_STEP = 16
"""A step by Python takes as much time as so many values."""
_STEPS_EVERYWHERE = 100_000


class ValueRoom:
    """Room for so many values, and for the time that the largest of them take."""

    def __init__(self, values: int) -> None:
        self._most = self.left = values
        self._steps_left = _STEPS_EVERYWHERE + values // _VALUES_OF_A_STEP

    def take_steps(self, steps: int) -> None:
        """Count steps by Python; RecordTooLargeError when there are too many."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise RecordTooLargeError(
                "long lists and maps of these records take too long: send smaller batches"
            )

    def take(self, values: int) -> None:
        """Take room, before any memory is taken; RecordTooLargeError when there is not enough."""
        self.left -= values
        if self.left < 0:
            raise RecordTooLargeError(
                f"lists and maps of these records have more than {self._most} values: send smaller"
                " batches"
            )
