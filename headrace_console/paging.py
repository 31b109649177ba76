"""Pages of lists: the server filters, sorts and cuts, so that a browser never holds 5,000 rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace_console.problem import ConsoleError
from storage_engine.tools.document import Document, Json

Row = TypeVar("Row")


def itself(row: Document) -> Document:
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The requested part of a list."""

    offset: int = 0
    limit: int = 50
    filter: str = ""
    sort: str | None = None
    """The name of the field to sort by, with - before it for descending order."""

    def of(
        self,
        rows: Iterable[Row],
        *,
        name: Callable[[Row], str],
        keys: Mapping[str, Callable[[Row], Any]],
        default: str,
    ) -> "PagedRows[Row]":
        """Return the rows of this page; rows without a value to sort by come last."""
        wanted = self.filter.casefold()
        found = [row for row in rows if wanted in name(row).casefold()] if wanted else list(rows)
        by = self.sort or default
        key = keys.get(by.removeprefix("-"))
        if key is None:
            raise ConsoleError(
                "bad_request", f"parameter 'sort' must be one of {', '.join(keys)}, perhaps with -"
            )
        with_value = [row for row in found if key(row) is not None]
        without = [row for row in found if key(row) is None]
        with_value.sort(key=key, reverse=by.startswith("-"))
        cut = (with_value + without)[self.offset : self.offset + self.limit]
        return PagedRows(cut, len(found), self)


@dataclass(frozen=True, slots=True)
class PagedRows(Generic[Row]):
    """The rows of a page; `total` counts those of all pages."""

    rows: Sequence[Row]
    total: int
    page: Page

    def document(
        self,
        row: Callable[[Row], Json],
        *,
        as_of_ms: int,
        unanswered: Sequence[Mapping[str, Json]] = (),
    ) -> Document:
        """Return the page as a document of the API."""
        return {
            "as_of_ms": as_of_ms,
            "unanswered": list(unanswered),
            "total": self.total,
            "offset": self.page.offset,
            "limit": self.page.limit,
            "rows": [row(each) for each in self.rows],
        }
