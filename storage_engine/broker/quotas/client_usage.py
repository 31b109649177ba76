"""What each client of this broker uses, beside its quotas.

A broker counts by itself: a quota of 1 MB/s allows that much from each broker, as in Kafka.
"""

import logging
from collections.abc import Iterator, Mapping

from storage_engine.broker.settings.config_entity import ConfigEntity
from storage_engine.core.ports import Clock
from storage_engine.core.quotas.client_quotas import ClientQuotas, Limit, Sharing
from storage_engine.core.quotas.quota_keys import QuotaKey, quotas_in
from storage_engine.core.quotas.usage import Usage

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
