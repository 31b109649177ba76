"""The faults of a run, as data: a schedule that follows from the seed alone.

Each fault says when it begins, which brokers it affects and how long it lasts, and ends by itself.
So any part of a schedule is a schedule, and a failing one can be shrunk.
"""

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass

from simulation.shared import profile_of


class Trait(enum.Flag):
    """Properties of kinds of faults."""

    NONE = 0
    RUNNING = enum.auto()
    """It befalls a broker only while it runs."""
    AT_ONCE = enum.auto()
    """It has no duration."""
    BETWEEN_TWO = enum.auto()
    SCRIPT = enum.auto()
    """See `scripts`."""
    TRANSACTIONS = enum.auto()
    """It is scheduled only with transactions."""
    PROOF = enum.auto()
    """It is scheduled only with `broker.death.proof=port`."""
    DISKS = enum.auto()
    """It is scheduled only with `disks`."""
    MACHINES = enum.auto()
    """It is scheduled only with `proof`, where brokers have machines and watchers."""


class FaultKind(enum.Enum):
    """The kinds of faults, with their names in output and their weights in schedules."""

    weight: int
    traits: Trait

    def __new__(cls, text: str, weight: int, traits: Trait = Trait.NONE) -> "FaultKind":
        made = object.__new__(cls)
        made._value_, made.weight, made.traits = text, weight, traits
        return made

    KILL = "kill", 10, Trait.RUNNING
    """SIGKILL: the page cache is kept, the session lives until its timeout."""
    QUICK_RESTART = "quick restart", 8, Trait.RUNNING | Trait.AT_ONCE
    """SIGKILL and a restart at once: the new incarnation ends the session of the old one."""
    POWER_LOSS = "power loss", 0, Trait.RUNNING
    """Unflushed bytes may be lost."""
    POWER_LOSS_OF_ALL = "power loss of all", 0
    POWER_LOSS_OF_ALL_BUT_ONE = "power loss of all but one", 0
    """One broker is killed only, and starts after the others."""
    LEAVE = "controlled shutdown", 3, Trait.RUNNING
    PAUSE = "pause", 8, Trait.RUNNING
    """SIGSTOP and SIGCONT."""
    SLOW_DISK = "slow disk", 3, Trait.RUNNING
    """Background work (flushes, deletions) begins only at the end of the fault."""
    CUT = "cut", 8, Trait.BETWEEN_TWO
    """The connections between two brokers break, and none can be opened."""
    RESET = "reset", 5, Trait.BETWEEN_TWO | Trait.AT_ONCE
    """The connections between two brokers break."""
    GIVE_UP = "give up", 6, Trait.BETWEEN_TWO | Trait.AT_ONCE
    """One broker gives up its connections to the other; what it has sent still arrives."""
    PARTITION = "partition", 8, Trait.BETWEEN_TWO
    """Nothing gets through between two brokers; what is sent arrives afterwards."""
    ONE_WAY_PARTITION = "one-way partition", 8, Trait.BETWEEN_TWO
    SLOW_NETWORK = "slow network", 3
    SESSION_CUT = "session cut", 10, Trait.RUNNING
    """The broker has no connection to ZooKeeper; if that lasts longer than the timeout, it loses
    the session."""
    LOST_ANSWERS = "lost answers", 8, Trait.RUNNING | Trait.AT_ONCE
    """ZooKeeper carries out some writes, and their answers are lost."""
    SLOW_ZOOKEEPER = "slow zookeeper", 4
    SLOW_SESSION = "slow session", 6, Trait.RUNNING
    """One broker's messages to and from ZooKeeper are slow."""
    CONTROLLER_CHANGE = "controller change", 5, Trait.AT_ONCE
    """/controller is removed by hand; the controller is notified later."""
    STALE_ORDERS = "stale orders", 6
    """The controller's orders to one broker are held up, while another broker restarts twice, the
    controller gives its connection up, and perhaps is replaced; then old orders arrive together
    with new ones."""
    STALE_FETCHES = "stale fetches", 5, Trait.SCRIPT
    MISSED_LEADERSHIP = "missed leadership", 5, Trait.SCRIPT
    STALE_ANSWERS = "stale answers", 5, Trait.SCRIPT
    UNNOTICED_RESTART = "unnoticed restart", 5, Trait.SCRIPT
    LATE_MARKERS = "late markers", 0, Trait.TRANSACTIONS
    """The markers of a transaction coordinator's broker are slow; it gives these connections up and
    sends them again, and the old markers arrive after the new ones."""
    LOST_MARKERS = "lost markers", 0, Trait.TRANSACTIONS
    """Markers are slow, and the coordinator's broker is restarted meanwhile."""
    SLOW_LOAD = "slow load", 0, Trait.TRANSACTIONS
    """A coordinator's broker is restarted, and all background work is slow for a while, including
    the load of the next coordinator."""
    REFUSED_PORT = "refused port", 0, Trait.RUNNING | Trait.PROOF
    """A firewall between a living broker and all others breaks their connections, and refuses new
    ones in its name; clients reach it."""
    DARK_MACHINE = "dark machine", 0, Trait.MACHINES
    """A machine loses its power: all its brokers and watchers end at one moment, some of the bytes
    that were not flushed are lost, and others hear nothing of it."""
    KILLED_UNITS = "killed units", 0, Trait.RUNNING | Trait.MACHINES
    """A broker is killed with its watcher; or all brokers of its machine, with theirs."""
    MACHINE_CUT_OFF = "machine cut off", 0, Trait.MACHINES
    """Nothing gets through between a machine and all others, ZooKeeper among them."""
    MACHINE_CUT_OFF_ONE_WAY = "machine cut off one way", 0, Trait.MACHINES
    """Nothing gets through in one direction, of what goes to and from ZooKeeper or not."""
    MACHINE_WITHOUT_ZOOKEEPER = "machine without zookeeper", 0, Trait.RUNNING | Trait.MACHINES
    """No process of a machine reaches ZooKeeper, and a broker of it is killed meanwhile."""
    KILLED_WATCHER = "killed watcher", 0, Trait.RUNNING | Trait.AT_ONCE | Trait.MACHINES
    """A broker's watcher is killed alone; the broker starts another."""
    LOST_PIPE = "lost pipe", 0, Trait.RUNNING | Trait.AT_ONCE | Trait.MACHINES
    """The pipe between a broker and its watcher ends, though both live."""
    MOVE_LOG = "move of a log", 0, Trait.RUNNING | Trait.AT_ONCE | Trait.DISKS
    """A replica is to move to another log dir of its broker."""
    BROKEN_LOG_DIR = "broken log dir", 0, Trait.RUNNING | Trait.DISKS
    """Every call on a log dir fails; the broker may be restarted without it, and is restarted
    when it works again."""
    FAILED_SYNCS = "failed syncs", 0, Trait.RUNNING | Trait.DISKS
    """Syncs in a log dir fail, as Linux fails them; then the broker is restarted."""
    DELETE_RECORDS = "delete records", 0, Trait.AT_ONCE | Trait.DISKS
    CLOCK_STEP = "step of the wall clock", 0, Trait.RUNNING | Trait.AT_ONCE | Trait.DISKS
    ELECT_PREFERRED = "elect preferred", 3, Trait.AT_ONCE
    """An administrator asks for it."""
    REASSIGN = "reassign", 6, Trait.AT_ONCE
    """Replicas move to other brokers, or elsewhere while a reassignment is under way."""
    CANCEL_REASSIGNMENT = "cancel reassignment", 2, Trait.AT_ONCE
    CREATE_TOPIC = "create topic", 2, Trait.AT_ONCE
    DELETE_TOPIC = "delete topic", 2, Trait.AT_ONCE
    GROW_TOPIC = "grow topic", 2, Trait.AT_ONCE

    @classmethod
    def having(cls, trait: Trait) -> "tuple[FaultKind, ...]":
        return tuple(kind for kind in cls if kind.traits & trait)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault; `number` is its place in the whole schedule of the seed."""

    number: int
    at_ms: int
    kind: FaultKind
    broker: int = 0
    other: int = 0
    """The second broker of two; 0 stands for the clients."""
    for_ms: int = 0
    seed: int = 0
    """The seed of further choices within the fault."""

    def __str__(self) -> str:
        who = f" broker {self.broker}" if self.broker else ""
        if self.kind.traits & Trait.BETWEEN_TWO:
            who += f" and {f'broker {self.other}' if self.other else 'the clients'}"
        return f"{self.kind.value}{who}" + (f" for {self.for_ms} ms" if self.for_ms else "")


SCRIPT_AT_MS = 1000
"""The time at which a script begins that is the only fault of its seed."""
_POWER_WEIGHTS = {FaultKind.POWER_LOSS: 12, FaultKind.POWER_LOSS_OF_ALL: 4}
_LOSSY_POWER_WEIGHTS = {
    FaultKind.POWER_LOSS: 12,
    FaultKind.POWER_LOSS_OF_ALL: 1,
    FaultKind.POWER_LOSS_OF_ALL_BUT_ONE: 12,
}
"""The weights without `flush.before.ack`: once all have lost their power little is promised any
more."""
OF_TRANSACTIONS = FaultKind.having(Trait.TRANSACTIONS)
OF_PROOF = FaultKind.having(Trait.PROOF)
OF_DISKS = FaultKind.having(Trait.DISKS)
OF_MACHINES = FaultKind.having(Trait.MACHINES)
_CUTS_FROM_ZOOKEEPER = {
    FaultKind.SESSION_CUT,
    FaultKind.MACHINE_CUT_OFF,
    FaultKind.MACHINE_CUT_OFF_ONE_WAY,
    FaultKind.MACHINE_WITHOUT_ZOOKEEPER,
}

MEAN_PAUSE_MS = (150, 300, 300, 600)
"""The mean pauses between two faults, of which each seed has one."""
LONGEST_MS = 5000
"""More than twice the session timeout: a broker that is away so long has been replaced."""
SESSION_MS = 2000
"""zookeeper.session.timeout.ms."""
MARKERS_PAUSE_MS = 1200
"""The mean pause between two of `OF_TRANSACTIONS`."""
FIRST_OF_TRANSACTIONS = 1001
"""The number of the first of them, so that the other faults keep their numbers."""
PORTS_PAUSE_MS = 1000
"""The mean pause between two refused ports."""
FIRST_OF_PORTS = 2001
"""The number of the first of them."""
DISKS_PAUSE_MS = 700
"""The mean pause between two faults of disks."""
MOVES_PAUSES_MS = (60, 200, 500)
"""The mean pauses between two moves, of which each seed has one."""
FIRST_OF_DISKS = 3001
"""The number of the first fault of disks."""
FIRST_OF_MOVES = 4001
"""The number of the first move."""
MACHINES_PAUSE_MS = 1500
"""The mean pause between two faults of machines and watchers."""
FIRST_OF_MACHINES = 5001
"""The number of the first of them."""
SCRIPT_MS = 6000
"""The time for a whole script."""


def schedule_of(seed: int, *, seconds: int) -> list[Fault]:
    """Return the faults of a seed's run, by time; those of a longer run begin with those of a
    shorter one. Each seed below 0 has one script alone, a different one in turn."""
    profile = profile_of(seed)
    choose = random.Random(f"faults {seed}")
    if seed < 0:
        scripts = FaultKind.having(Trait.SCRIPT)
        kind, script_seed = scripts[-seed % len(scripts)], choose.getrandbits(32)
        return [
            Fault(
                number=1,
                at_ms=SCRIPT_AT_MS,
                kind=kind,
                broker=1,
                for_ms=SCRIPT_MS,
                seed=script_seed,
            )
        ]
    weights = {kind: kind.weight for kind in FaultKind if kind.weight}
    if profile.power_fails:
        weights |= _POWER_WEIGHTS if profile.durable else _LOSSY_POWER_WEIGHTS
    kinds = list(weights)
    # Each seed has its own weights, so that some have many faults of one kind and none of another.
    likely = [weights[kind] * choose.choice((0, 0.3, 1, 1, 3)) for kind in kinds]
    if not any(likely):
        likely = [1.0] * len(kinds)
    brokers = range(1, profile.brokers + 1)
    mean_pause_ms = choose.choice(MEAN_PAUSE_MS)

    def made() -> _Drawn:
        (kind,) = choose.choices(kinds, likely)
        broker = choose.choice(brokers)
        others = [b for b in (0, *brokers, *brokers) if b != broker]
        return kind, broker, choose.choice(others), _duration_ms(kind, choose)

    return _spread(choose, 1, made, pause_ms=mean_pause_ms, seconds=seconds)


def marker_faults_of(seed: int, *, seconds: int) -> list[Fault]:
    """Return the faults that are added with transactions, from a generator of its own, so that the
    rest of the schedule is the same without."""
    choose = random.Random(f"marker faults {seed}")
    return _spread(
        choose,
        FIRST_OF_TRANSACTIONS,
        lambda: (choose.choice(OF_TRANSACTIONS), 1, 0, choose.randint(200, 4000)),
        pause_ms=MARKERS_PAUSE_MS,
        seconds=seconds,
    )


def port_faults_of(seed: int, *, brokers: int, seconds: int) -> list[Fault]:
    """Return the faults that are added where a refused port counts as proof."""
    choose = random.Random(f"port faults {seed}")
    kind = FaultKind.REFUSED_PORT
    return _spread(
        choose,
        FIRST_OF_PORTS,
        lambda: (kind, choose.randint(1, brokers), 0, choose.randint(500, 3000)),
        pause_ms=PORTS_PAUSE_MS,
        seconds=seconds,
    )


def disk_faults_of(seed: int, *, brokers: int, seconds: int) -> list[Fault]:
    """Return the faults that are added where brokers have two log dirs. Power is lost during all
    of them."""
    kinds = [FaultKind.POWER_LOSS, *(kind for kind in OF_DISKS if kind is not FaultKind.MOVE_LOG)]
    choose, movers = random.Random(f"disk faults {seed}"), random.Random(f"moves {seed}")
    likely = [choose.choice((0.3, 1, 3)) for _ in kinds]

    def fault() -> _Drawn:
        (kind,) = choose.choices(kinds, likely)
        return kind, choose.randint(1, brokers), 0, _duration_ms(kind, choose)

    def move() -> _Drawn:
        return FaultKind.MOVE_LOG, movers.randint(1, brokers), 0, 0

    pause_ms = movers.choice(MOVES_PAUSES_MS)
    return [
        *_spread(choose, FIRST_OF_DISKS, fault, pause_ms=DISKS_PAUSE_MS, seconds=seconds, least=1),
        *_spread(movers, FIRST_OF_MOVES, move, pause_ms=pause_ms, seconds=seconds, least=1),
    ]


def machine_faults_of(seed: int, *, brokers: int, seconds: int) -> list[Fault]:
    """Return the faults that are added where brokers have machines and watchers. The broker of a
    fault is one of the machine's."""
    choose = random.Random(f"machine faults {seed}")
    likely = [choose.choice((0.3, 1, 3)) for _ in OF_MACHINES]

    def fault() -> _Drawn:
        (kind,) = choose.choices(OF_MACHINES, likely)
        return kind, choose.randint(1, brokers), 0, _duration_ms(kind, choose)

    return _spread(
        choose, FIRST_OF_MACHINES, fault, pause_ms=MACHINES_PAUSE_MS, seconds=seconds, least=1
    )


_Drawn = tuple[FaultKind, int, int, int]
"""The kind, the broker, the other broker and the duration."""


def _spread(
    choose: random.Random,
    first: int,
    made: Callable[[], _Drawn],
    *,
    pause_ms: int,
    seconds: int,
    least: int = 0,
) -> list[Fault]:
    """Return faults numbered from `first`, with that mean pause and `least` more between two."""
    faults: list[Fault] = []
    at_ms = 0
    while (at_ms := at_ms + least + int(choose.expovariate(1 / pause_ms))) < seconds * 1000:
        kind, broker, other, for_ms = made()
        faults.append(
            Fault(
                number=first + len(faults),
                at_ms=at_ms,
                kind=kind,
                broker=broker,
                other=other,
                for_ms=for_ms,
                seed=choose.getrandbits(32),
            )
        )
    return faults


def _duration_ms(kind: FaultKind, choose: random.Random) -> int:
    """Return a duration: mostly a short one, sometimes longer than a session lives."""
    if kind.traits & Trait.AT_ONCE:
        return 0
    if kind.traits & Trait.SCRIPT:
        return SCRIPT_MS
    duration_ms = min(LONGEST_MS, 5 + int(choose.lognormvariate(5.8, 1.3)))
    if kind in _CUTS_FROM_ZOOKEEPER and duration_ms % 2:
        # Half of them are long enough to lose the session.
        duration_ms += SESSION_MS
    return duration_ms
