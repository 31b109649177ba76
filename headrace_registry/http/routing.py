"""Routes by the parts of a path, each decoded by itself: a subject may have slashes, encoded."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote

from headrace_registry.forwarding import Forwarded
from headrace_registry.http.calls import QueryParams, RegistryCall
from storage_engine.core.schemas.registry.records import Json
from storage_engine.core.schemas.registry.registry_error import RegistryError

Answer: TypeAlias = "Json | bytes | Forwarded"
"""A document, JSON that is there as bytes, or the writer's answer."""

Handler = Callable[[RegistryCall], Answer]
Row = TypeVar("Row")
_PART = re.compile(r"\{(\w+)\}")


class _Route(NamedTuple):
    method: str
    parts: tuple[str, ...]
    handler: Handler


class FoundRoute(NamedTuple):
    """A route with what its path says."""

    handler: Handler
    path: Mapping[str, str]


class Routes:
    """Routes, in the order in which they are tried."""

    def __init__(self) -> None:
        self._routes: list[_Route] = []

    def __iter__(self) -> Iterator[_Route]:
        return iter(self._routes)

    def add(self, method: str, path: str) -> Callable[[Handler], Handler]:
        """Declare what serves a path."""

        def declare(handler: Handler) -> Handler:
            self._routes.append(_Route(method, tuple(path.strip("/").split("/")), handler))
            return handler

        return declare

    def include(self, other: "Routes") -> None:
        self._routes += other

    def find(self, method: str, raw_path: str) -> FoundRoute:
        """`raw_path`: still encoded. RegistryError 404 or 405."""
        try:
            parts = [unquote(part, errors="strict") for part in raw_path.strip("/").split("/")]
        except UnicodeDecodeError:
            raise RegistryError(400, "the path is not UTF-8") from None
        methods = set()
        for route in self._routes:
            path = _match(route.parts, parts)
            if path is None:
                continue
            if route.method == method:
                return FoundRoute(route.handler, path)
            methods.add(route.method)
        if methods:
            raise RegistryError(405, f"HTTP 405 Method Not Allowed: use {', '.join(methods)}")
        raise RegistryError(404, "HTTP 404 Not FoundRoute")


def _match(wanted: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    if len(wanted) != len(parts):
        return None
    found = {}
    for name, part in zip(wanted, parts, strict=True):
        placeholder = _PART.fullmatch(name)
        if placeholder is not None:
            found[placeholder[1]] = part
        elif name != part:
            return None
    return found


def page(rows: Sequence[Row], params: QueryParams) -> Sequence[Row]:
    """The rows from `offset` on, `limit` at most."""
    offset, limit = params.number("offset", 0), params.number("limit", -1)
    if offset < 0:
        raise RegistryError(400, f"the parameter offset is {offset}; it can't be negative")
    return rows[offset:] if limit < 0 else rows[offset : offset + limit]
