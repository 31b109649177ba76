"""The machines on which a seed's brokers run, and the proof that one of them is dead."""

import random
from dataclasses import dataclass

from simulation.world.processes import SimulatedMachine
from storage_engine.core.settings.settings import BY_PORT, BY_PROCESS

NOTICED_MAX_MS = (1, 5, 50)
"""The longest delay until a process's end is noticed, of which each seed has one."""

WATCHER_MS = (1, 300)
"""How long after its broker's end a watcher acts."""
LATE_MS = (300, 5000)
"""The same of one that is late: the next incarnation has often registered by then."""
LATE_WATCHERS = (0.05, 0.2, 0.5)
FAILED_ATTEMPTS = (0, 0.2, 0.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The properties of a seed whose brokers do not always wait for sessions."""

    machines: tuple[int, ...]
    """The number of the machine of each broker."""
    proof: str
    """broker.death.proof."""
    cuts_refuse: bool
    """Whether what cuts two brokers off refuses connections in the other's name: a false proof."""
    noticed_max_ms: int
    late_watchers: float
    """The share of ends that a watcher acts on late."""
    failed_attempts: float
    """The share of attempts of watchers that fail."""

    def make_machines(
        self, choose: random.Random, watchers: random.Random
    ) -> list[SimulatedMachine]:
        """`choose` and `watchers`: the delays of notices, and what watchers do."""

        def watcher_ms() -> int:
            is_late = watchers.random() < self.late_watchers
            least_ms, most_ms = LATE_MS if is_late else WATCHER_MS
            return watchers.randint(least_ms, most_ms)

        made = {number: SimulatedMachine(f"{number:x}") for number in self.machines}
        for machine in made.values():
            machine.noticed_ms = lambda: choose.randint(1, self.noticed_max_ms)
            machine.watcher_ms = watcher_ms
            machine.attempt_fails = lambda: watchers.random() < self.failed_attempts
        return [made[number] for number in self.machines]

    def __str__(self) -> str:
        refusals = ", cuts refuse" if self.cuts_refuse else ""
        return f"machines {list(self.machines)}, proof by {self.proof}{refusals}"


def placement_of(seed: int, brokers: int) -> Placement:
    choose = random.Random(f"placement {seed}")
    proof = choose.choice((BY_PROCESS, BY_PORT))
    # Brokers of one machine know better than by ports.
    count = brokers if proof == BY_PORT else choose.choice((1, 2, 2))
    return Placement(
        machines=tuple(choose.randint(1, count) for _ in range(brokers)),
        proof=proof,
        cuts_refuse=choose.random() < 0.7,
        noticed_max_ms=choose.choice(NOTICED_MAX_MS),
        late_watchers=choose.choice(LATE_WATCHERS),
        failed_attempts=choose.choice(FAILED_ATTEMPTS),
    )
