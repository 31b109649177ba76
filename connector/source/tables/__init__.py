"""Reads what retention took from the logs out of the tables of topics. What needs the extra `lake`
is loaded where a query names a table."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from connector.errors import OptionError
from connector.options.source_options import SourceOptions

if TYPE_CHECKING:
    from connector.source.reading import Reading
    from connector.source.tables.table_history import TableHistory


def check_installed(options: SourceOptions) -> None:
    """OptionError where a table is named, and what reads tables is not installed."""
    if options.tables is None:
        return
    for package in ("deltalake", "obstore"):
        if find_spec(package) is None:
            raise OptionError(
                "MISSING_PACKAGE",
                f"'table' needs the package {package} on driver and workers: "
                "pip install 'headrace[lake]'",
            )


def new_history(
    options: SourceOptions, reading: "Reading | None", topics: set[str]
) -> "TableHistory | None":
    """The tables of these topics, for planning; None where the options name none."""
    if options.tables is None:
        return None
    from connector.source.tables.table_history import TableHistory

    history = TableHistory(options, None if reading is None else reading.plan)
    history.read_topics(topics)
    return history
