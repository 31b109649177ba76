"""Cuts of a log that its copy in another log dir has not followed yet."""


class UnfollowedCuts:
    """Records the truncations of a log while it is copied; the copy follows them."""

    __slots__ = ("begun_anew", "lowest_end_offset")

    def __init__(self) -> None:
        self.begun_anew = False
        """True when the log was emptied, and may begin anywhere: the copy must begin anew as
        well."""
        self.lowest_end_offset: int | None = None
        """The lowest end that the log had; None when it was not truncated."""

    def note_end(self, end_offset: int) -> None:
        """Records that the log was truncated, and ends at `end_offset` (exclusive)."""
        lowest = self.lowest_end_offset
        if lowest is None or end_offset < lowest:
            self.lowest_end_offset = end_offset

    def note_new_beginning(self) -> None:
        """Records that the log is empty now, or that the extent of its loss is unknown."""
        self.begun_anew = True
