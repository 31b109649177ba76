"""Why a table is no longer written: nothing is committed until somebody has looked."""

import enum

from storage_engine.core.errors import HeadraceError

ACCEPTED_VERSION = "headrace.accepted.version"
"""A property of the table: what others did up to this version is accepted as it is."""

TOPIC_ID = "headrace.topic.id"
"""A property of the table: the id of the topic that it holds."""

ACCEPTED_GAPS = "headrace.accepted.gaps"
"""A property of the table: `true` goes on behind records that retention took away unread."""


class StopKind(enum.Enum):
    """The reasons, as they stand in states and metrics."""

    TRUNCATED = "truncated"
    RECREATED = "recreated"
    GAP = "gap"
    FOREIGN_CHANGE = "foreign-change"
    PROPERTIES = "properties"
    COLUMNS = "columns"
    STORE = "store"


class TableStoppedError(HeadraceError):
    """The table must not be written as things are; the text is one line with the remedy."""

    def __init__(self, kind: StopKind, line: str) -> None:
        super().__init__(line)
        self.kind = kind


def property_set_by(name: str, value: str) -> str:
    """Return the statement of SQL that sets a property of the table."""
    return f"ALTER TABLE ... SET TBLPROPERTIES ('{name}' = '{value}')"
