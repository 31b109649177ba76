"""Which quotas a request asks for (KIP-546)."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.quotas.quota_entity import CLIENT_ID, IP, USER, QuotaEntity


class MatchType(enum.IntEnum):
    """How a part of an entity is matched."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


Part = tuple[str, MatchType, str | None]
"""The type of a part, how it is matched, and the name for EXACT."""


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """`is_strict`: an entity has no parts but those named."""

    parts: tuple[Part, ...]
    is_strict: bool

    @classmethod
    def of_request(
        cls, parts: Iterable[tuple[str, int, str | None]], *, is_strict: bool
    ) -> "QuotaFilter":
        """KafkaError says what is wrong."""
        checked: list[Part] = []
        for kind, match_type, name in parts:
            if kind not in (USER, CLIENT_ID, IP):
                raise _invalid(f"'{kind}' is no type of entity; there are user, client-id and ip")
            if any(kind == other for other, _, _ in checked):
                raise _invalid(f"the type '{kind}' stands twice")
            if match_type not in set(MatchType):
                raise _invalid(f"the match type {match_type} is not 0, 1 or 2")
            if (match_type == MatchType.EXACT) != (name is not None):
                raise _invalid("a name belongs to match type 0, and to no other")
            checked.append((kind, MatchType(match_type), name))
        if len(checked) > 1 and any(kind == IP for kind, _, _ in checked):
            raise _invalid("an ip can't be combined with a user or a client-id")
        return cls(tuple(checked), is_strict)

    def matches(self, entity: QuotaEntity) -> bool:
        named = dict(entity.parts)
        if self.is_strict and len(named) != len(self.parts):
            return False
        return all(
            kind in named and _matches(match, name, named[kind]) for kind, match, name in self.parts
        )


def _matches(match: MatchType, wanted: str | None, name: str | None) -> bool:
    """`name` None: the default's."""
    if match is MatchType.ANY:
        return True
    return name == wanted if match is MatchType.EXACT else name is None


def _invalid(reason: str) -> KafkaError:
    return KafkaError(f"the filter of quotas is wrong: {reason}", ErrorCode.INVALID_REQUEST)
