"""The quota for replication traffic of replicas that are not in sync, in bytes a second.

The quota is a bucket that leaks at the rate. An excess is paid back by waiting, so that the rate
holds on average however large one answer is. The caller passes the time. Source: KIP-73.
"""

from dataclasses import dataclass

BURST_MS = 1000
"""How far the traffic may be ahead of the rate, as in Kafka's window of one second: a fetch is
larger than what a small rate allows in a moment."""

ALL = "*"


@dataclass(slots=True)
class ReplicationQuota:
    """The quota of one direction on one broker."""

    bytes_per_second: int
    _level: float = 0.0
    """The bytes that have not leaked yet."""
    _at_ms: int = 0

    def record(self, size_bytes: int, *, now_ms: int) -> None:
        self._leak(now_ms)
        self._level += size_bytes

    def delay_ms(self, *, now_ms: int) -> int:
        """Return how long to wait before sending or fetching more; 0 for not at all."""
        self._leak(now_ms)
        over = self._level - self.bytes_per_second * BURST_MS / 1000
        return 0 if over <= 0 else int(over * 1000 / self.bytes_per_second) + 1

    def _leak(self, now_ms: int) -> None:
        leaked = self.bytes_per_second * max(0, now_ms - self._at_ms) / 1000
        self._level = max(0.0, self._level - leaked)
        self._at_ms = now_ms


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The throttled replicas of a topic: `partition:broker` each, or `*` for all."""

    everyone: bool = False
    replicas: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def of(cls, items: tuple[str, ...]) -> "ThrottledReplicas":
        """Parse the value of a setting that has been validated."""
        if not items:
            return NONE_THROTTLED
        pairs = (item.split(":") for item in items if item != ALL)
        return cls(
            everyone=ALL in items,
            replicas=frozenset((int(partition), int(broker)) for partition, broker in pairs),
        )

    def covers(self, partition: int, broker: int) -> bool:
        return self.everyone or (partition, broker) in self.replicas


NONE_THROTTLED = ThrottledReplicas()
