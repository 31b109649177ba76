"""The checkpoint files that hold the offsets of a log. They belong to its log dir, and hold the
offsets of all logs there.

Source: R-LOG8.
"""

from typing import Protocol


class LogCheckpoints(Protocol):
    """The checkpoint files as one log sees them."""

    def write(self) -> None:
        """Brings the log's recovery point, start offset and first dirty offset to the medium.
        OSError when that fails."""
        ...

    def saved_recovery_point(self) -> int | None:
        """Return the recovery point that is on the medium; None when no file holds it."""
        ...


class NoCheckpoints:
    """The checkpoints of a log that was opened without a log dir: its offsets are kept nowhere."""

    def write(self) -> None: ...

    def saved_recovery_point(self) -> int | None:
        return None
