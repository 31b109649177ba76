"""What each client of this broker uses, beside its quotas.

A broker counts by itself: a quota of 1 MB/s allows that much from each broker, as in Kafka.

The quotas that one request counts for, and what follows for its connection (KIP-219).

An answer tells the client how long to wait, and no request of its connection is taken meanwhile:
clients that do not wait are held back as well. No request is refused for its size: the next ones
wait for it.

Bounds how often an address connects (KIP-612).

`max.connection.creation.rate` of the broker, and of each listener (KIP-612).

Connections above a rate are not refused: they wait in the system's queue until there is credit, so
that a crowd that comes back at once is served in its turn. The listener that brokers have to
themselves counts for the broker's rate, and waits for its own alone.

How many producers the logs of one broker remember, and who may begin another one.

Clients choose producer ids, and may spread them over all partitions. What the logs hold is counted,
led or followed, so a start, a truncation or a compaction changes nothing. Only a leader refuses,
when it appends: a follower takes what its leader took. Nobody gets more than is left free after it,
so whoever comes new finds room, and a few anybody may begin. Source: KIP-936.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from storage_engine.broker.settings.config_store import ConfigEntity
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.listener_map import PREFIX
from storage_engine.core.errors import (
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    TooManyProducersError,
)
from storage_engine.core.metrics import ThrottleFigures
from storage_engine.core.ports import Clock, Scheduler
from storage_engine.core.quotas import ClientQuotas, Limit, QuotaKey, Sharing, Usage, quotas_in
from storage_engine.core.retained.producer_state import IDLE_MS, ProducerStates
from storage_engine.core.settings.setting import INT_MAX
from storage_engine.net.connection import Connection
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchRequest, FetchResponse
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.spec import AnyApi
from storage_engine.protocol.apis.throttle_time import with_throttle_time
from storage_engine.protocol.records.record_batch import HEADER_BYTES, iter_headers

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
"""What requests are looked at for."""


class ClientUsage:
    """Quotas are there as soon as ZooKeeper's are read, and as they change."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quotas = ClientQuotas()
        self._used: dict[QuotaKey, Usage[Sharing]] = {
            key: Usage(burst_s) for key, burst_s in BURST_S.items()
        }
        self.bounds_requests = False
        """Whether there is any quota of requests; else none has to be looked at."""

    # Quotas.

    def known(self) -> Iterator[ConfigEntity]:
        """Who has a quota now."""
        for entity in self._quotas.all:
            yield ConfigEntity.of_quota(entity)

    def take(self, entity: ConfigEntity, settings: Mapping[str, str]) -> None:
        """Applies the present quotas of an entity."""
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
                "quotas taken of=%s quotas=%s",
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
        """Counts `amount` for those who share the limit; how long they have to wait, in ms."""
        return self._used[key].take(limit.sharing, limit.bound, amount, self._clock.monotonic_ms())

    def connect(self, ip: str) -> int:
        """Counts a new connection; 0. Where its address has no credit, it is not counted, and the
        result is how long that lasts, in ms."""
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
FIRST_STRICT_VERSION = {
    CREATE_TOPICS: 6,
    DELETE_TOPICS: 5,
    CREATE_PARTITIONS: 3,
    METADATA: _NEVER,
}
"""The APIs that create and delete topics. From these versions on clients know
THROTTLING_QUOTA_EXCEEDED; who asks for the metadata of a topic, which creates it, only waits."""

PERCENT_PER_NS = 100 / 1_000_000_000


class CallQuota:
    """One request of a client that has a quota."""

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
        """`is_strict`: the client knows that changes of topics may be refused for a quota."""
        self._parts = parts
        self._connection = connection
        self._consumed = consumed
        self._requests = requests
        self._mutations = mutations
        self._is_strict = is_strict
        self.wait_ms = 0
        """How long the client has to wait, as far as it is known by now."""

    def within(self, request: FetchRequest) -> FetchRequest:
        """A fetch that brings no more than a burst: a larger one would be waited for anyway."""
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
        """The broker has worked for this request."""
        if self._requests is not None:
            self.use(QuotaKey.REQUESTS, self._requests, ns * PERCENT_PER_NS)

    def mutate(self, partitions: int) -> None:
        """Counts partitions that are to be created or deleted. KafkaError where there is no credit
        and the client knows this error; else it waits (KIP-599)."""
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
        """The answer as it is to be sent."""
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
        """None where nothing bounds the client. `size`: of the request."""
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


LONGEST_MS = 1000
"""A connection too many is closed after this at the latest, so that few are kept waiting."""


class ConnectionRate:
    """A connection for which there is no credit is not read, and closed a little later: a client
    that tries again at once would otherwise do so as fast as it can."""

    def __init__(self, usage: ClientUsage, scheduler: Scheduler) -> None:
        self._usage = usage
        self._scheduler = scheduler

    def opened(self, connection: Connection) -> None:
        wait_ms = self._usage.connect(connection.peer_host)
        if not wait_ms:
            return
        connection.hold()
        reason = f"the quota connection_creation_rate of {connection.peer_host} is used up"
        self._scheduler.call_later(min(wait_ms, LONGEST_MS), lambda: connection.close(reason))


KEY = "max.connection.creation.rate"
_CREATION_BURST_S = 1.0
_OF_BROKER = ""


class CreationRates:
    """The rates of one broker, as its settings have them now."""

    def __init__(self, config: DynamicConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._used: Usage[str] = Usage(_CREATION_BURST_S)

    def of(self, listener: str, *, is_for_brokers: bool) -> "ListenerRate":
        """That of a listener."""
        return ListenerRate(self, f"{PREFIX}{listener.lower()}.{KEY}", not is_for_brokers)

    def bounds(self, own_key: str) -> dict[str, int]:
        """What counts for a listener: by who shares it, without those that are no bounds."""
        found = {_OF_BROKER: self._config.integer(KEY)}
        if self._config.is_set(own_key):
            found[own_key] = self._config.integer(own_key)
        return {who: bound for who, bound in found.items() if bound < INT_MAX}

    def take(self, who: str, bound: int, connections: int) -> int:
        """Counts them; then how long the next has to wait, in ms."""
        return self._used.take(who, bound, connections, self._clock.monotonic_ms())


class ListenerRate:
    """How often connections come by one listener: `net.serving.AcceptRate`."""

    def __init__(self, rates: CreationRates, key: str, waits_for_broker: bool) -> None:
        self._rates = rates
        self._key = key
        self._waits_for_broker = waits_for_broker

    def wait_ms(self) -> int:
        """How long the next connection has to wait; 0: it need not."""
        return max(
            (
                self._rates.take(who, bound, 0)
                for who, bound in self._rates.bounds(self._key).items()
                if who == self._key or self._waits_for_broker
            ),
            default=0,
        )

    def count(self) -> None:
        """A connection has come."""
        for who, bound in self._rates.bounds(self._key).items():
            self._rates.take(who, bound, 1)


BROKER_PRODUCERS_MAX = 200_000
"""Producers that the logs of a broker share; some 40 MiB."""

FEW = 100
"""So many a principal may begin in IDLE_MS, however many there are."""

COUNTED_EACH = 1_000
"""The logs are counted anew when so many producers have begun: those of followed logs are not told,
and to look at thousands of logs for each new producer would be the work."""


class NewProducers:
    """Admits producers that a log does not know yet. Those in a transaction are always taken: the
    coordinator knows them."""

    def __init__(self, logs: Callable[[], Iterable[ProducerStates]], clock: Clock) -> None:
        """`logs`: the producers that each log of this broker remembers."""
        self._logs = logs
        self._clock = clock
        self._remembered = 0
        self._uncounted = COUNTED_EACH
        """Producers that have begun since the logs were counted."""
        self._begun: dict[Hashable, int] = {}
        """By principal the producers that it began in this span of IDLE_MS."""
        self._begun_before: dict[Hashable, int] = {}
        """In the span before."""
        self._span_ms = clock.monotonic_ms()

    def count(self) -> int:
        """Count what the logs of this broker remember; done every minute at the latest."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._span_ms >= IDLE_MS:
            self._begun, self._begun_before = {}, self._begun
            self._span_ms = now_ms
        self._remembered = sum([len(each) for each in self._logs()])
        self._uncounted = 0
        return self._remembered

    def refusal(
        self, principal: Hashable, known: ProducerStates, records: memoryview
    ) -> TooManyProducersError | None:
        """Why these batches, none of a transaction, may not be appended."""
        free = self.free_for(principal)
        if len(records) < HEADER_BYTES * (free + 1):
            return None
        new = _new_producers(known, records)
        if new <= free:
            return None
        return TooManyProducersError(
            f"{new} new producers, and {principal} may begin {max(0, free)}: this broker remembers"
            f" {self._remembered}, wait until some have been silent for {IDLE_MS // 60_000} minutes"
        )

    def free_for(self, principal: Hashable) -> int:
        """Return how many more producers this principal may begin now."""
        if self._uncounted >= COUNTED_EACH:
            self.count()
        began = self._begun.get(principal, 0) + self._begun_before.get(principal, 0)
        return max(FEW - began, (BROKER_PRODUCERS_MAX - self._remembered - began) // 2)

    def note(self, principal: Hashable, count: int) -> None:
        """The principal has begun so many."""
        self._begun[principal] = self._begun.get(principal, 0) + count
        self._remembered += count
        self._uncounted += count


def _new_producers(known: ProducerStates, records: memoryview) -> int:
    """Count producers that the log does not know; the append says what is wrong with a batch."""
    found: set[int] = set()
    with suppress(CorruptRecordError):
        for _, header in iter_headers(records):
            if header.producer_id >= 0:
                found.add(header.producer_id)
    return sum(known.get(producer_id) is None for producer_id in found)
