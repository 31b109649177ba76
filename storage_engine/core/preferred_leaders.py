"""Chooses which replica of each partition is preferred as its leader.

First the one that is preferred for the fewest partitions so far; then paths of swaps take from the
brokers with the most what others can take, until no path makes anything more even. Source:
R-REP13.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence

from storage_engine.core.ids import BrokerId

Replicas = tuple[BrokerId, ...]

PARTITIONS_PER_STEP = 256
"""The partitions that are looked at before others have their turn: some 1 ms."""


class PreferredLeaders:
    """The preferred leaders of new partitions."""

    def __init__(
        self,
        preferred: Mapping[BrokerId, int],
        machine_share: Callable[[BrokerId, int], float],
        order: Callable[[int, BrokerId], int],
    ) -> None:
        """`preferred`: for how many partitions brokers are preferred already.
        `machine_share(broker, change)` adds to the leaders of the broker's machine, and returns
        how many there are for each of its brokers. `order` settles between equals, by their number
        of partitions."""
        self._preferred = Counter(preferred)
        self._machine_share = machine_share
        self._order = order
        self._led: dict[BrokerId, list[int]] = {}
        """Broker -> the new partitions for which it is preferred."""
        self._leader: list[BrokerId] = []

    def choose(self, replicas: Sequence[Replicas]) -> Generator[None, None, list[Replicas]]:
        """Return the replicas of each partition with the preferred leader first, and then as a
        dead leader's partitions are shared out among many."""
        for number, each in enumerate(replicas):
            if number % PARTITIONS_PER_STEP == 0:
                yield
            self._lead(number, self._least(each))
        yield from self._even_out(replicas)
        return (yield from self._ordered(replicas))

    def _least(self, replicas: Replicas) -> BrokerId:
        preferred = self._preferred
        return min(
            replicas,
            key=lambda broker: (
                preferred[broker],
                self._machine_share(broker, 0),
                self._order(preferred[broker], broker),
            ),
        )

    def _lead(self, partition: int, broker: BrokerId) -> None:
        self._preferred[broker] += 1
        self._machine_share(broker, 1)
        self._led.setdefault(broker, []).append(partition)
        self._leader.append(broker)

    def _even_out(self, replicas: Sequence[Replicas]) -> Generator[None, None, None]:
        """Swap along paths while one leads from a broker to another that has at least two less."""
        involved = {broker for each in replicas for broker in each}
        stuck: set[BrokerId] = set()
        while True:
            yield
            rest = [broker for broker, led in self._led.items() if led and broker not in stuck]
            most = max(rest, key=lambda broker: (self._preferred[broker], -broker), default=None)
            least = min(self._preferred[broker] for broker in involved)
            if most is None or self._preferred[most] < least + 2:
                return
            path = self._path(most, replicas)
            if path:
                for partition, broker in path:
                    self._swap(partition, broker)
            else:
                stuck.add(most)

    def _path(
        self, start: BrokerId, replicas: Sequence[Replicas]
    ) -> list[tuple[int, BrokerId]] | None:
        """Return (partition, its next leader) for each swap of the shortest path."""
        enough = self._preferred[start] - 2
        came: dict[BrokerId, tuple[int, BrokerId]] = {}
        waiting = deque([start])
        while waiting:
            broker = waiting.popleft()
            for partition in self._led.get(broker, ()):
                for other in replicas[partition]:
                    if other == start or other in came:
                        continue
                    came[other] = partition, broker
                    if self._preferred[other] <= enough:
                        path = []
                        while other != start:
                            partition, before = came[other]
                            path.append((partition, other))
                            other = before
                        return path
                    waiting.append(other)
        return None

    def _swap(self, partition: int, broker: BrokerId) -> None:
        before = self._leader[partition]
        self._led[before].remove(partition)
        self._led.setdefault(broker, []).append(partition)
        self._leader[partition] = broker
        self._preferred[before] -= 1
        self._preferred[broker] += 1

    def _ordered(self, replicas: Sequence[Replicas]) -> Generator[None, None, list[Replicas]]:
        successions: Counter[tuple[BrokerId, BrokerId]] = Counter()
        ordered: list[Replicas] = []
        for leader, each in zip(self._leader, replicas, strict=True):
            if len(ordered) % PARTITIONS_PER_STEP == 0:
                yield
            followers = [broker for broker in each if broker != leader]
            if followers:
                next_one = min(followers, key=lambda broker: successions[leader, broker])
                successions[leader, next_one] += 1
                followers.remove(next_one)
                followers.insert(0, next_one)
            ordered.append((leader, *followers))
        return ordered
