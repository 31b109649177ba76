"""Quotas: how much a user, a client id or an address may use. The most specific quota applies, and
defines with whom the client shares it (KIP-55):

    /config/users/<user>/clients/<client-id>            both by name: this pair
    /config/users/<user>/clients/<default>              this pair
    /config/users/<user>                                all client ids of this user
    /config/users/<default>/clients/<client-id>         this pair
    /config/users/<default>/clients/<default>           this pair
    /config/users/<default>                             all client ids of this user
    /config/clients/<client-id>                         all users of this client id
    /config/clients/<default>                           all users of this client id

A rate is credit that grows with time up to a bound. Kafka takes the average over a window of 11 s
instead, and forgets what is older: a client begins with ten seconds' worth at once, and one that
sends more than a window's worth in one request never pays for all of it. Credit holds the rate over
any time, but for one burst. Source: KIP-13, KIP-55, KIP-124, KIP-219, KIP-546, KIP-599, KIP-612.
"""

import enum
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.printable import escaped, unescaped

DEFAULT = ""
"""The name of the default entity: no other name is empty."""

_DEFAULT_ZNODE = "<default>"
"""No other name has this form in ZooKeeper, since `<` is escaped there."""

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

NAME_MAX = 255
"""The most characters of a znode's name: ZooKeeper would refuse longer ones late."""


@dataclass(frozen=True, slots=True, order=True)
class QuotaEntity:
    """An owner of quotas. None: the part is irrelevant; DEFAULT: names without their own quota."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @classmethod
    def of_request(cls, parts: Iterable[tuple[str, str | None]]) -> "QuotaEntity":
        """Return the entity of `parts`, type and name as in a request; None is the default.
        KafkaError gives the reason for a refusal."""
        found: dict[str, str] = {}
        for kind, name in parts:
            if kind not in (USER, CLIENT_ID, IP):
                raise _invalid(f"'{kind}' is no type of entity; there are user, client-id and ip")
            if kind in found:
                raise _invalid(f"the type '{kind}' stands twice")
            if name == "":
                raise _invalid(f"the name of the {kind} is empty")
            if name is not None and len(escaped(name)) > NAME_MAX:
                raise _invalid(f"the name of the {kind} has more than {NAME_MAX} characters")
            found[kind] = DEFAULT if name is None else name
        if not found:
            raise _invalid("it names neither a user nor a client-id nor an ip")
        if IP in found and len(found) > 1:
            raise _invalid("an ip can't be combined with a user or a client-id")
        return cls(found.get(USER), found.get(CLIENT_ID), found.get(IP))

    @property
    def parts(self) -> list[tuple[str, str | None]]:
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return [(kind, name or None) for kind, name in named if name is not None]

    @property
    def path(self) -> str:
        """The path below /config, as in notifications: users/alice/clients/app."""
        if self.ip is not None:
            return f"ips/{_znode_name(self.ip)}"
        clients = None if self.client_id is None else f"clients/{_znode_name(self.client_id)}"
        if self.user is None:
            return clients or ""
        users = f"users/{_znode_name(self.user)}"
        return users if clients is None else f"{users}/{clients}"

    @classmethod
    def parse(cls, path: str) -> "QuotaEntity | None":
        """Return the entity of a path below /config; None for a path of another kind."""
        match path.split("/"):
            case ["users", user]:
                entity = cls(user=_name(user))
            case ["users", user, "clients", client_id]:
                entity = cls(user=_name(user), client_id=_name(client_id))
            case ["clients", client_id]:
                entity = cls(client_id=_name(client_id))
            case ["ips", ip]:
                entity = cls(ip=_name(ip))
            case _:
                return None
        # A name that is escaped in another way than `path` does it is refused.
        return entity if entity != cls() and entity.path == path else None

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name or 'default'}" for kind, name in self.parts)


def _znode_name(name: str) -> str:
    return _DEFAULT_ZNODE if name == DEFAULT else escaped(name)


def _name(znode_name: str) -> str | None:
    return DEFAULT if znode_name == _DEFAULT_ZNODE else unescaped(znode_name)


def _invalid(reason: str, subject: str = "entity of the quota") -> KafkaError:
    return KafkaError(f"the {subject} is wrong: {reason}", ErrorCode.INVALID_REQUEST)


def _invalid_filter(reason: str) -> KafkaError:
    return _invalid(reason, "filter of quotas")


class QuotaKey(enum.Enum):
    """The kinds of quotas, with their names in ZooKeeper."""

    PRODUCED = "producer_byte_rate"
    """Bytes of Produce requests a second."""
    CONSUMED = "consumer_byte_rate"
    """Bytes of Fetch answers a second."""
    REQUESTS = "request_percentage"
    """Share of the time of one processor that the broker works for the client, in percent."""
    MUTATIONS = "controller_mutation_rate"
    """Partitions that are created or deleted a second."""
    CONNECTIONS = "connection_creation_rate"
    """New connections a second from an address."""


_OF_USERS = (QuotaKey.PRODUCED, QuotaKey.CONSUMED, QuotaKey.REQUESTS, QuotaKey.MUTATIONS)
_OF_IPS = (QuotaKey.CONNECTIONS,)
_WHOLE = (QuotaKey.PRODUCED, QuotaKey.CONSUMED, QuotaKey.CONNECTIONS)
"""The kinds for which Kafka accepts whole numbers only."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Quotas = Mapping[QuotaKey, float]


def checked(entity: QuotaEntity, name: str, value: float) -> QuotaKey:
    """Return the key called `name` if `value` may be its bound for the entity; KafkaError names
    what may be set."""
    allowed = _OF_USERS if entity.ip is None else _OF_IPS
    key = next((key for key in allowed if key.value == name), None)
    if key is None:
        names = ", ".join(each.value for each in allowed)
        raise KafkaError(
            f"'{name}' can't be set for {entity}; there are {names}", ErrorCode.INVALID_REQUEST
        )
    problem = _problem(key, value)
    if problem is not None:
        raise KafkaError(f"{name}={value:g}: {problem}", ErrorCode.INVALID_REQUEST)
    return key


def _problem(key: QuotaKey, value: float) -> str | None:
    if math.isnan(value) or value <= 0:
        return "must be above 0"
    if key in _WHOLE:
        most = INT_MAX if key is QuotaKey.CONNECTIONS else LONG_MAX
        if value != math.floor(value) or value > most:
            return f"must be a whole number up to {most}"
    if math.isinf(value):
        return "must be finite"
    return None


def setting_of(key: QuotaKey, value: float) -> str:
    """Return the value's text in ZooKeeper, as Kafka writes it."""
    return str(int(value)) if key in _WHOLE else repr(value)


def quotas_in(settings: Mapping[str, str]) -> tuple[dict[QuotaKey, float], list[str]]:
    """Return the quotas among an entity's settings in ZooKeeper, which may have others, such as a
    user's credentials; and a line for each quota that can't be parsed."""
    quotas: dict[QuotaKey, float] = {}
    problems: list[str] = []
    for key in QuotaKey:
        text = settings.get(key.value)
        if text is None:
            continue
        try:
            value = float(text)
        except ValueError:
            problems.append(f"{key.value}={text} is not a number")
            continue
        problem = _problem(key, value)
        if problem is None:
            quotas[key] = value
        else:
            problems.append(f"{key.value}={text} {problem}")
    return quotas, problems


class MatchType(enum.IntEnum):
    """How a part of an entity is matched."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


Part = tuple[str, MatchType, str | None]
"""The type of a part, how it is matched, and the name for EXACT."""


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """A filter of entities. `is_strict`: an entity has no other parts than the filter."""

    parts: tuple[Part, ...]
    is_strict: bool

    @classmethod
    def of_request(
        cls, parts: Iterable[tuple[str, int, str | None]], *, is_strict: bool
    ) -> "QuotaFilter":
        """Return the filter of a request; KafkaError gives the reason for a refusal."""
        checked: list[Part] = []
        for kind, match_type, name in parts:
            if kind not in (USER, CLIENT_ID, IP):
                raise _invalid_filter(
                    f"'{kind}' is no type of entity; there are user, client-id and ip"
                )
            if any(kind == other for other, _, _ in checked):
                raise _invalid_filter(f"the type '{kind}' stands twice")
            if match_type not in set(MatchType):
                raise _invalid_filter(f"the match type {match_type} is not 0, 1 or 2")
            if (match_type == MatchType.EXACT) != (name is not None):
                raise _invalid_filter("a name belongs to match type 0, and to no other")
            checked.append((kind, MatchType(match_type), name))
        if len(checked) > 1 and any(kind == IP for kind, _, _ in checked):
            raise _invalid_filter("an ip can't be combined with a user or a client-id")
        return cls(tuple(checked), is_strict)

    def matches(self, entity: QuotaEntity) -> bool:
        named = dict(entity.parts)
        if self.is_strict and len(named) != len(self.parts):
            return False
        return all(
            kind in named and _matches(match, name, named[kind]) for kind, match, name in self.parts
        )


def _matches(match: MatchType, wanted: str | None, name: str | None) -> bool:
    """`name` None: the default entity."""
    if match is MatchType.ANY:
        return True
    return name == wanted if match is MatchType.EXACT else name is None


CACHED_MAX = 10_000
"""The most cached limits: clients choose their ids, so they need a bound."""


class Sharing(NamedTuple):
    """The clients that share a bound, by their names; an empty name: all."""

    user: str
    client_id: str


class Limit(NamedTuple):
    """A bound in units a second, and the clients that share it."""

    bound: float
    sharing: Sharing


class ClientQuotas:
    """The quotas by entity; empty until one is set."""

    def __init__(self) -> None:
        self._of: dict[QuotaEntity, Quotas] = {}
        self._keys: frozenset[QuotaKey] = frozenset()
        self._limits: dict[tuple[QuotaKey, str, str], Limit | None] = {}

    def set(self, entity: QuotaEntity, quotas: Quotas) -> None:
        if quotas:
            self._of[entity] = dict(quotas)
        else:
            self._of.pop(entity, None)
        self._keys = frozenset(key for each in self._of.values() for key in each)
        self._limits.clear()

    @property
    def all(self) -> Mapping[QuotaEntity, Quotas]:
        return self._of

    @property
    def keys(self) -> frozenset[QuotaKey]:
        return self._keys

    def limit(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        """Return the client's quota of this kind; None: unlimited."""
        if key not in self._keys:
            return None
        asked = (key, user, client_id)
        try:
            return self._limits[asked]
        except KeyError:
            pass
        if len(self._limits) >= CACHED_MAX:
            self._limits.clear()
        limit = self._limits[asked] = self._found(key, user, client_id)
        return limit

    def limit_of_ip(self, ip: str) -> float | None:
        """Return the most new connections a second from the address; None: unlimited."""
        for name in (ip, DEFAULT):
            bound = self._of.get(QuotaEntity(ip=name), {}).get(QuotaKey.CONNECTIONS)
            if bound is not None:
                return bound
        return None

    def _found(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        pair, of_user, of_client = (
            Sharing(user, client_id),
            Sharing(user, ""),
            Sharing("", client_id),
        )
        for entity, sharing in (
            (QuotaEntity(user, client_id), pair),
            (QuotaEntity(user, DEFAULT), pair),
            (QuotaEntity(user), of_user),
            (QuotaEntity(DEFAULT, client_id), pair),
            (QuotaEntity(DEFAULT, DEFAULT), pair),
            (QuotaEntity(DEFAULT), of_user),
            (QuotaEntity(None, client_id), of_client),
            (QuotaEntity(None, DEFAULT), of_client),
        ):
            bound = self._of.get(entity, {}).get(key)
            if bound is not None:
                return Limit(bound, sharing)
        return None


class TokenBucket:
    """Credit that grows with time up to a bound; a new bucket is full."""

    __slots__ = ("_at_ms", "_burst_s", "_tokens", "rate")

    def __init__(self, rate: float, burst_s: float, now_ms: int) -> None:
        """`rate`: tokens a second, above 0; `burst_s`: the most seconds' worth that is saved."""
        self.rate = rate
        self._burst_s = burst_s
        self._tokens = rate * burst_s
        self._at_ms = now_ms

    def change_rate(self, rate: float, now_ms: int) -> None:
        """Change the rate; credit or debt stays the same number of seconds' worth."""
        self._fill(now_ms)
        self._tokens *= rate / self.rate
        self.rate = rate

    def take(self, tokens: float, now_ms: int) -> None:
        """Take the tokens even where there are fewer: the next request waits for the debt."""
        self._fill(now_ms)
        self._tokens -= tokens

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the debt is paid; 0 without debt."""
        self._fill(now_ms)
        return 0 if self._tokens >= 0 else int(-self._tokens / self.rate * 1000) + 1

    def is_full(self, now_ms: int) -> bool:
        """Whether the bucket is as full as a new one."""
        self._fill(now_ms)
        return self._tokens >= self.rate * self._burst_s

    def _fill(self, now_ms: int) -> None:
        if now_ms > self._at_ms:
            gained = self.rate * (now_ms - self._at_ms) / 1000
            self._tokens = min(self.rate * self._burst_s, self._tokens + gained)
            self._at_ms = now_ms


Who = TypeVar("Who", bound=Hashable)

KEPT_MAX = 10_000
"""The most buckets: clients choose their ids. Beyond that, clients idle for longest begin anew."""


class Usage(Generic[Who]):
    """The usage of one kind of quota. Clients with full credit are forgotten."""

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._buckets: dict[Who, TokenBucket] = {}
        """The buckets in the order of their last use."""

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, who: Who, bound: float, amount: float, now_ms: int) -> int:
        """Charge `amount` to `who`, and return how long it has to wait, in ms."""
        bucket = self._buckets.pop(who, None)
        if bucket is None:
            bucket = TokenBucket(bound, self._burst_s, now_ms)
        elif bucket.rate != bound:
            bucket.change_rate(bound, now_ms)
        bucket.take(amount, now_ms)
        self._buckets[who] = bucket
        self._forget(now_ms)
        return bucket.wait_ms(now_ms)

    def _forget(self, now_ms: int) -> None:
        """Forget at most two of the oldest buckets: each call of `take` adds one."""
        for _ in range(2):
            oldest = next(iter(self._buckets))
            is_crowded = len(self._buckets) > KEPT_MAX
            if not is_crowded and not self._buckets[oldest].is_full(now_ms):
                return
            del self._buckets[oldest]
            if not self._buckets:
                return
