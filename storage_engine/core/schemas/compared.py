"""The lines that say why two schemas are not compatible, in the form of Confluent's registry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Side:
    """What the reader's and the writer's schema are called: `new` is the one that somebody wants to
    register, `old` the one that is there."""

    reader: str = "new"
    writer: str = "old"

    def line(self, error_type: str, description: str, additional_info: str | None = None) -> str:
        more = "" if additional_info is None else f", additionalInfo:'{additional_info}'"
        return f"{{errorType:'{error_type}', description:'{description}'{more}}}"
