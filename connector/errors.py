"""What the connector refuses, each with a stable code. Its one rule: a message is one line.

Spark keeps the text of a Python exception and drops its type, so the code is a part of the text.
Source: FACTS.md, errors of Python data sources.
"""

from storage_engine.core.errors import HeadraceError


class ConnectorError(HeadraceError):
    """Something that the user of the Spark format can mend; the text begins with `[code]`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


class OptionError(ConnectorError):
    """An option is unknown, misspelled, impossible, or does not go together with another."""


class DataLossError(ConnectorError):
    """Records that the query has not read are gone, and `failOnDataLoss` is true."""


class RowError(ConnectorError):
    """A row can't be written: no topic, a partition that does not exist, a record too large."""
