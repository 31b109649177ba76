"""Counts what each client uses of its quotas, and makes it wait after it has used too much.

A broker counts by itself: a quota of 1 MB/s allows 1 MB/s from each broker, as in Kafka. A request
may count for several quotas; the longest wait applies. The answer tells the client how long to
wait, and meanwhile the broker reads no request of the connection, so clients that ignore the answer
are held back as well. No request is refused for its size: the requests after it wait instead.
Source: KIP-219.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import TypeVar

from storage_engine.broker.settings.config_store import ConfigEntity
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.metrics import ThrottleFigures
from storage_engine.core.ports import Clock, Scheduler
from storage_engine.core.quotas import ClientQuotas, Limit, QuotaKey, Sharing, Usage, quotas_in
from storage_engine.net.connection import Connection
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchRequest, FetchResponse
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.spec import AnyApi
from storage_engine.protocol.apis.throttle_time import with_throttle_time

log = logging.getLogger(__name__)


BURST_S: Mapping[QuotaKey, float] = {
    QuotaKey.PRODUCED: 1.0,
    QuotaKey.CONSUMED: 1.0,
    QuotaKey.REQUESTS: 1.0,
    # An administrator makes many topics at once and then none for long (KIP-599).
    QuotaKey.MUTATIONS: 10.0,
    QuotaKey.CONNECTIONS: 1.0,
}

OF_REQUESTS = frozenset(QuotaKey) - {QuotaKey.CONNECTIONS}
"""The quotas that are checked for requests."""


class ClientUsage:
    """The quotas in ZooKeeper, as last read, and their usage."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quotas = ClientQuotas()
        self._used: dict[QuotaKey, Usage[Sharing]] = {
            key: Usage(burst_s) for key, burst_s in BURST_S.items()
        }
        self.bounds_requests = False
        """Whether there is any quota of requests; otherwise requests need no check."""

    # Quotas.

    def known(self) -> Iterator[ConfigEntity]:
        """The entities with a quota now."""
        for entity in self._quotas.all:
            yield ConfigEntity.of_quota(entity)

    def take(self, entity: ConfigEntity, settings: Mapping[str, str]) -> None:
        """Apply the present quotas of an entity."""
        who = entity.quota
        if who is None:
            return
        quotas, problems = quotas_in(settings)
        for problem in problems:
            log.error("quota of %s ignored: %s", entity.path, problem)
        if quotas != self._quotas.all.get(who, {}):
            self._quotas.set(who, quotas)
            self.bounds_requests = not OF_REQUESTS.isdisjoint(self._quotas.keys)
            log.info(
                "quotas applied of=%s quotas=%s",
                entity.path,
                {key.value: value for key, value in quotas.items()},
            )

    @property
    def quotas(self) -> ClientQuotas:
        return self._quotas

    # Usage.

    def limit(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        return self._quotas.limit(key, user, client_id)

    def use(self, key: QuotaKey, limit: Limit, amount: float) -> int:
        """Count `amount` for the sharers of the limit; return how long they have to wait, in ms."""
        return self._used[key].take(limit.sharing, limit.bound, amount, self._clock.monotonic_ms())

    def connect(self, ip: str) -> int:
        """Count a new connection and return 0; without credit for its address, don't count it and
        return how long that lasts, in ms."""
        bound = self._quotas.limit_of_ip(ip)
        if bound is None:
            return 0
        limit = Limit(bound, Sharing(ip, ""))
        wait_ms = self.use(QuotaKey.CONNECTIONS, limit, 0)
        if not wait_ms:
            self.use(QuotaKey.CONNECTIONS, limit, 1)
        return wait_ms


Message = TypeVar("Message")

METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 3, 19, 20, 37

_NEVER = 1 << 15
"""Above every version, which is an int16."""
FIRST_STRICT_VERSION = {
    CREATE_TOPICS: 6,
    DELETE_TOPICS: 5,
    CREATE_PARTITIONS: 3,
    METADATA: _NEVER,
}
"""The APIs that create and delete topics. From these versions on clients know
THROTTLING_QUOTA_EXCEEDED; a Metadata request, which creates a topic, only waits."""

PERCENT_PER_NS = 100 / 1_000_000_000


class CallQuota:
    """The quotas of one request, of a client that has any."""

    __slots__ = (
        "_connection",
        "_consumed",
        "_is_strict",
        "_mutations",
        "_parts",
        "_requests",
        "wait_ms",
    )

    def __init__(
        self,
        parts: "RequestQuotas",
        connection: Connection,
        *,
        consumed: Limit | None,
        requests: Limit | None,
        mutations: Limit | None,
        is_strict: bool,
    ) -> None:
        """`is_strict`: the client knows the error for an exceeded quota of topic changes."""
        self._parts = parts
        self._connection = connection
        self._consumed = consumed
        self._requests = requests
        self._mutations = mutations
        self._is_strict = is_strict
        self.wait_ms = 0
        """How long the client has to wait, as known by now."""

    def within(self, request: FetchRequest) -> FetchRequest:
        """Limit a fetch to the bytes of a burst: a larger one would have to wait anyway."""
        if self._consumed is None:
            return request
        most = max(1, int(self._consumed.bound * BURST_S[QuotaKey.CONSUMED]))
        return request if request.max_bytes <= most else request._replace(max_bytes=most)

    def use(self, key: QuotaKey, limit: Limit, amount: float) -> None:
        wait_ms = self._parts.usage.use(key, limit, amount)
        if wait_ms:
            self._parts.note_throttle(key, wait_ms)
            self._wait(wait_ms)

    def _wait(self, wait_ms: int) -> None:
        if wait_ms > self.wait_ms:
            self.wait_ms = wait_ms
            self._connection.hold()
            self._parts.scheduler.call_later(wait_ms, self._connection.release)

    def worked(self, ns: int) -> None:
        """Count the time that the broker has worked for this request."""
        if self._requests is not None:
            self.use(QuotaKey.REQUESTS, self._requests, ns * PERCENT_PER_NS)

    def mutate(self, partitions: int) -> None:
        """Count partitions to be created or deleted. Without credit raises KafkaError if the client
        knows the error; otherwise the client waits (KIP-599)."""
        if self._mutations is None:
            return
        wait_ms = self._parts.usage.use(QuotaKey.MUTATIONS, self._mutations, 0)
        if wait_ms and self._is_strict:
            self._parts.note_throttle(QuotaKey.MUTATIONS, wait_ms)
            self._wait(wait_ms)
            raise KafkaError(
                f"the quota {QuotaKey.MUTATIONS.value}={self._mutations.bound:g} is used up for"
                f" {wait_ms} ms",
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            )
        self.use(QuotaKey.MUTATIONS, self._mutations, partitions)

    def answered(self, message: Message) -> Message:
        """Count the answer; return it with the throttle time."""
        if self._consumed is not None and isinstance(message, FetchResponse):
            size = sum(len(part.records) for part in message.partitions if part.records is not None)
            self.use(QuotaKey.CONSUMED, self._consumed, size)
        return with_throttle_time(message, self.wait_ms) if self.wait_ms else message


class RequestQuotas:
    """Looks up the quotas of requests."""

    def __init__(self, usage: ClientUsage, scheduler: Scheduler) -> None:
        self.usage = usage
        self.scheduler = scheduler
        self.throttles = {key: ThrottleFigures() for key in QuotaKey}

    def note_throttle(self, key: QuotaKey, wait_ms: int) -> None:
        figures = self.throttles[key]
        figures.count += 1
        figures.wait_ms += wait_ms

    def of(
        self, connection: Connection, client_id: str, spec: AnyApi, version: int, size: int
    ) -> CallQuota | None:
        """The quotas of a request; None where nothing limits the client. `size`: its bytes."""
        first_strict = FIRST_STRICT_VERSION.get(spec.key)
        limit = self.usage.limit
        user = connection.principal.name
        requests = limit(QuotaKey.REQUESTS, user, client_id)
        produced = limit(QuotaKey.PRODUCED, user, client_id) if spec is PRODUCE else None
        consumed = limit(QuotaKey.CONSUMED, user, client_id) if spec is FETCH else None
        mutations = None if first_strict is None else limit(QuotaKey.MUTATIONS, user, client_id)
        if requests is None and produced is None and consumed is None and mutations is None:
            return None
        quota = CallQuota(
            self,
            connection,
            consumed=consumed,
            requests=requests,
            mutations=mutations,
            is_strict=first_strict is not None and version >= first_strict,
        )
        if produced is not None:
            quota.use(QuotaKey.PRODUCED, produced, size)
        return quota
