"""Why a table can't stand for a log's beginning."""

from storage_engine.core.errors import HeadraceError


class HistoryError(HeadraceError):
    """The table is not what is asked for; the text is one line with the remedy."""


class FileGoneError(HeadraceError):
    """A file of a version is no longer there: a later version has its rows in other files."""
