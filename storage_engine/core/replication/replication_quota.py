"""How much a broker may send, or take, for replicas that are not in sync: bytes over time.

Rule: a bucket that leaks at the rate. What is over is paid back by waiting, so that the rate holds
on average however large one answer is. No clock: the caller says what time it is. Source: KIP-73.
"""

from dataclasses import dataclass

BURST_MS = 1000
"""What may be ahead of the rate, as Kafka's window of one second: a fetch is larger than a small
rate's share of a moment."""

ALL = "*"


@dataclass(slots=True)
class ReplicationQuota:
    """One direction on one broker."""

    bytes_per_second: int
    _level: float = 0.0
    """Bytes that have not leaked yet."""
    _at_ms: int = 0

    def record(self, size_bytes: int, *, now_ms: int) -> None:
        self._leak(now_ms)
        self._level += size_bytes

    def delay_ms(self, *, now_ms: int) -> int:
        """How long to wait before more; 0: go on."""
        self._leak(now_ms)
        over = self._level - self.bytes_per_second * BURST_MS / 1000
        return 0 if over <= 0 else int(over * 1000 / self.bytes_per_second) + 1

    def _leak(self, now_ms: int) -> None:
        leaked = self.bytes_per_second * max(0, now_ms - self._at_ms) / 1000
        self._level = max(0.0, self._level - leaked)
        self._at_ms = now_ms


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Which replicas of a topic are throttled: `partition:broker` each, or `*` for all."""

    everyone: bool = False
    replicas: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def of(cls, items: tuple[str, ...]) -> "ThrottledReplicas":
        """The value of a setting, which was checked when it was read."""
        pairs = (item.split(":") for item in items if item != ALL)
        return cls(
            everyone=ALL in items,
            replicas=frozenset((int(partition), int(broker)) for partition, broker in pairs),
        )

    def covers(self, partition: int, broker: int) -> bool:
        return self.everyone or (partition, broker) in self.replicas


NONE_THROTTLED = ThrottledReplicas()
