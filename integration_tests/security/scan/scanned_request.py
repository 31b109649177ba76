"""What a scan sends: a request, the rights that it asks for, and what it would do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from integration_tests.security.scan.planted import (
    Planted,
    built,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.registry import APIS, name_of
from storage_engine.tests.broker.guards.api_cases import (
    Right,
    refusal_of,
)

WAIT_MS = 10_000
NEWEST = 1_000


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """One request."""

    key: int
    request: Callable[[Planted], Any]
    rights: tuple[Right, ...] = ()
    note: str = ""
    first: int = 0
    """The first version that it is for, and the last."""
    last: int = NEWEST
    changes: bool = False
    """Whether it changes the cluster."""
    shows: bool = False
    """Whether its answer has what is not for everybody."""
    is_answered: bool = True
    is_told: bool = True
    """Whether who may not is told so, by an error code; in some versions there is none."""
    refusals: dict[Right, ErrorCode] = field(default_factory=dict)
    """Where the error is not that of the right's resource."""

    @property
    def versions(self) -> Sequence[int]:
        served = APIS[self.key].versions
        return range(max(self.first, served.min_version), min(self.last, served.max_version) + 1)

    def refusal(self, right: Right) -> ErrorCode:
        return self.refusals.get(right, refusal_of(right))

    def __str__(self) -> str:
        return f"{name_of(self.key)}{self.note and f'-{self.note}'}"


def scanned(key: int, request: Callable[[Planted], Any], *rights: Right, **more: Any) -> Scanned:
    return Scanned(key=key, request=request, rights=rights, **more)


def same(key: int, /, **fields: Any) -> Callable[[Planted], Any]:
    return lambda _: built(key, **fields)
