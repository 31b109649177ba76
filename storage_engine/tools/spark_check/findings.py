"""The findings of `headrace spark-check`: what was checked, what was found, and what to do."""

from dataclasses import dataclass
from enum import StrEnum


class CheckVerdict(StrEnum):
    """Whether Spark's format `headrace` works: OK, or with ADVICE to make it faster or safer, or
    not before the user has done what is TO_DO."""

    OK = "ok"
    ADVICE = "advice"
    TO_DO = "to do"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the table."""

    check: str
    found: str
    verdict: CheckVerdict = CheckVerdict.OK
    remedy: str = ""
    """The user's next step; empty with OK."""

    def __post_init__(self) -> None:
        assert (self.verdict is CheckVerdict.OK) == (not self.remedy), self

    @classmethod
    def to_do(cls, check: str, found: str, remedy: str) -> "Finding":
        """Return a finding for a format that does not work without the remedy."""
        return cls(check=check, found=found, verdict=CheckVerdict.TO_DO, remedy=remedy)
