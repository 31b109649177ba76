"""`max.connection.creation.rate` of the broker, and of each listener (KIP-612).

Connections above a rate are not refused: they wait in the system's queue until there is credit, so
that a crowd that comes back at once is served in its turn. The listener that brokers have to
themselves counts for the broker's rate, and waits for its own alone.
"""

from storage_engine.broker.quotas.client_usage import ClientUsage
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.listener_map import PREFIX
from storage_engine.core.ports import Clock, Scheduler
from storage_engine.core.quotas import Usage
from storage_engine.core.settings.setting import INT_MAX
from storage_engine.net.connection import Connection

LONGEST_MS = 1000
"""The longest time until a refused connection is closed, so that few are kept waiting."""


class ConnectionRate:
    """Leaves a connection without credit unread, and closes it a little later: a client that tries
    again at once would otherwise do so as fast as it can."""

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
    """The connection creation rates of one broker, as its settings are now."""

    def __init__(self, config: DynamicConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._used: Usage[str] = Usage(_CREATION_BURST_S)

    def of(self, listener: str, *, is_for_brokers: bool) -> "ListenerRate":
        """The connection creation rate of a listener."""
        return ListenerRate(self, f"{PREFIX}{listener.lower()}.{KEY}", not is_for_brokers)

    def bounds(self, own_key: str) -> dict[str, int]:
        """The limits that count for a listener, by who shares them, without unlimited ones."""
        found = {_OF_BROKER: self._config.integer(KEY)}
        if self._config.is_set(own_key):
            found[own_key] = self._config.integer(own_key)
        return {who: bound for who, bound in found.items() if bound < INT_MAX}

    def take(self, who: str, bound: int, connections: int) -> int:
        """Count the connections; return how long the next one has to wait, in ms."""
        return self._used.take(who, bound, connections, self._clock.monotonic_ms())


class ListenerRate:
    """The rate of new connections of a listener: `net.serving.AcceptRate`."""

    def __init__(self, rates: CreationRates, key: str, waits_for_broker: bool) -> None:
        self._rates = rates
        self._key = key
        self._waits_for_broker = waits_for_broker

    def wait_ms(self) -> int:
        """How long the next connection has to wait; 0: not at all."""
        return max(
            (
                self._rates.take(who, bound, 0)
                for who, bound in self._rates.bounds(self._key).items()
                if who == self._key or self._waits_for_broker
            ),
            default=0,
        )

    def count(self) -> None:
        for who, bound in self._rates.bounds(self._key).items():
            self._rates.take(who, bound, 1)
