"""Changes of the table by others since our last commit.

Each of our commits says the version that it makes, and was made on a version whose commits were
all looked at. So only those behind the last version that we made can be unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace_lake.protocol.stops import (
    ACCEPTED_VERSION,
    StopKind,
    TableStoppedError,
    property_set_by,
)
from storage_engine.core.printable import printable

REFUSED_PROPERTY = "delta.setTransactionRetentionDuration"
"""With it Delta forgets versions of applications, and with them how far a table is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """One commit of the table's log, as far as it matters."""

    version: int
    operation: str = ""
    """Its writer's name for it, such as MERGE."""
    commit_id: str | None = None
    applications: Mapping[str, int] = field(default_factory=dict)
    """The versions of ours that it sets."""
    files_appended: int = 0
    """Files with new rows."""
    files_taken: int = 0
    """Files whose rows it takes away, or changes; not those that it only puts together."""
    configuration: Mapping[str, str] | None = None
    """The table's properties, where it sets them."""


def check_changes(
    name: str, changes: Iterable[TableChange], marker: str, *, accepted_version: int
) -> list[str]:
    """TableStoppedError for a change by others after which the rows are no longer the topic's.

    `marker` is the application that our commits set. Return a line for each change that is allowed
    and that somebody may wonder about.
    """
    lines = []
    for change in changes:
        is_ours = change.applications.get(marker) == change.version
        if is_ours or change.version <= accepted_version:
            continue
        operation = printable(change.operation or "a commit")
        if change.configuration is not None:
            check_properties(name, change.configuration, operation=operation)
        if change.files_taken or change.operation == "RESTORE":
            raise TableStoppedError(
                StopKind.FOREIGN_CHANGE,
                f"the table of {name}: {operation} by others (version {change.version}) took away "
                f"or changed rows in {change.files_taken} files: write the topic to a table at "
                "another location, or accept the rows as they are: "
                f"{property_set_by(ACCEPTED_VERSION, str(change.version))}",
            )
        if change.files_appended:
            lines.append(
                f"the table of {name}: {operation} by others (version {change.version}) added "
                f"{change.files_appended} files with rows that are not of the topic"
            )
    return lines


def missing_changes(name: str, first: int, last: int) -> TableStoppedError:
    """Return the error for versions whose commits can't be looked at any more."""
    return TableStoppedError(
        StopKind.FOREIGN_CHANGE,
        f"the table of {name}: what versions {first} to {last} did can't be told, as the table's "
        "log no longer has them: write the topic to a table at another location, or accept the "
        f"rows as they are: {property_set_by(ACCEPTED_VERSION, str(last))}",
    )


def lost_progress(name: str) -> TableStoppedError:
    """Return the error for a table of ours that does not say how far it is."""
    return TableStoppedError(
        StopKind.FOREIGN_CHANGE,
        f"the table of {name} no longer says how far it is: a program removed that from its log: "
        "write the topic to a table at another location",
    )


def check_properties(name: str, configuration: Mapping[str, str], *, operation: str = "") -> None:
    """TableStoppedError for properties with which a table can't be written exactly once."""
    if REFUSED_PROPERTY in configuration:
        by = f", set by {operation}," if operation else ""
        raise TableStoppedError(
            StopKind.PROPERTIES,
            f"the table of {name} has the property {REFUSED_PROPERTY}{by} with which it forgets "
            "how far it is: remove the property, and write the topic to a table at another "
            "location if it was in force",
        )
    mapping = configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise TableStoppedError(
            StopKind.PROPERTIES,
            f"the table of {name} has delta.columnMapping.mode={printable(mapping)}, which is not "
            "supported: write the topic to a table at another location",
        )


def accepted_version(configuration: Mapping[str, str]) -> int:
    """Return the version up to which changes by others are accepted; -1: none is."""
    text = configuration.get(ACCEPTED_VERSION, "-1")
    return int(text) if text.isdecimal() else -1
