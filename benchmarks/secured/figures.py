"""A row of `headrace bench secured`."""

from dataclasses import dataclass

COLUMNS = ("what", "measured", "limit", "ratio", "spread", "goal", "met", "cpu_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure, and what it is compared with; the unit is in `what`."""

    what: str
    measured: float
    limit: float | None = None
    ratio: float | None = None
    spread: str = ""
    """The lowest and the highest ratio, or figure where there is no ratio."""
    goal: str | None = None
    met: bool | None = None
    cpu_ratio: float | None = None
    """Processor time of the broker for the same work, beside that of the limit."""
