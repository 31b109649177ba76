"""Brokers that are leaving, and the partitions that they have yet to give up.

Rule: these go in waves, the led ones first; the next wave begins when the leaders of the last one
know that they lead. So a partition is without a leader for as long as its wave takes, however many
the broker led. Source: R-CTL9.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field

from storage_engine.core.ids import BrokerId, TopicPartition

LEAST_IN_WAVE = 50
"""So few that brokers take their roles between two requests of a producer."""

MOST_WAVES = 50
"""A broker of very many partitions moves more of them at a time: it is waited for."""


@dataclass(slots=True)
class _Departure:
    """One broker's."""

    waiting: deque[TopicPartition]
    wave_size: int
    wave: set[TopicPartition] = field(default_factory=set)


@dataclass(slots=True)
class ControlledShutdowns:
    """The brokers that asked to leave."""

    _departures: dict[BrokerId, _Departure] = field(default_factory=dict)

    @property
    def leaving(self) -> Set[BrokerId]:
        return self._departures.keys()

    def begin(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> None:
        """It is to give up these, in this order. Asked for again, it begins again."""
        waiting = deque(partitions)
        size = max(LEAST_IN_WAVE, -(-len(waiting) // MOST_WAVES))
        self._departures[broker] = _Departure(waiting=waiting, wave_size=size)

    def forget(self, brokers: Iterable[BrokerId]) -> None:
        """They are gone, or have come back as other incarnations."""
        for broker in brokers:
            self._departures.pop(broker, None)

    def waiting(self, broker: BrokerId) -> Iterator[TopicPartition]:
        """What has not had its turn."""
        return iter(self._departures[broker].waiting)

    def next_wave(self, is_over: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        """The partitions that begin to move now; none while a wave is not over."""
        begun: list[TopicPartition] = []
        for departure in self._departures.values():
            departure.wave = {p for p in departure.wave if not is_over(p)}
            if departure.wave:
                continue
            while departure.waiting and len(departure.wave) < departure.wave_size:
                departure.wave.add(departure.waiting.popleft())
            begun += departure.wave
        return begun
