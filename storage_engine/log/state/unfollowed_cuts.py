"""Cuts of a log that its copy in another log dir has not followed yet."""


class UnfollowedCuts:
    """The log notes its cuts here while it is copied; the copy is brought in line by them."""

    __slots__ = ("begun_anew", "lowest_end_offset")

    def __init__(self) -> None:
        self.begun_anew = False
        """The log was emptied, and may begin anywhere: the copy must be made anew as well."""
        self.lowest_end_offset: int | None = None
        """The lowest end that the log had; None when it was not cut."""

    def note_end(self, end_offset: int) -> None:
        """The log was cut, and ends at `end_offset` (exclusive)."""
        lowest = self.lowest_end_offset
        if lowest is None or end_offset < lowest:
            self.lowest_end_offset = end_offset

    def note_new_beginning(self) -> None:
        """The log is empty now, or nobody knows how much of it is gone."""
        self.begun_anew = True
