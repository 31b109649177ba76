"""The faults of a run, as data: a schedule that follows from the seed alone.

Each fault says when it begins, which brokers it affects and how long it lasts, and ends by itself.
So any part of a schedule is a schedule, and a failing one can be shrunk.
"""

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial


class FaultKind(enum.Enum):
    """The kinds of faults, with their names in output."""

    KILL = "kill"
    """SIGKILL: the page cache is kept, the session lives until its timeout."""
    QUICK_RESTART = "quick restart"
    """SIGKILL and a restart at once: the new incarnation ends the session of the old one."""
    POWER_LOSS = "power loss"
    """Unflushed bytes may be lost."""
    POWER_LOSS_OF_ALL = "power loss of all"
    POWER_LOSS_OF_ALL_BUT_ONE = "power loss of all but one"
    """One broker is killed only, and starts after the others."""
    LEAVE = "controlled shutdown"
    PAUSE = "pause"
    """SIGSTOP and SIGCONT."""
    SLOW_DISK = "slow disk"
    """Background work (flushes, deletions) begins only at the end of the fault."""
    CUT = "cut"
    """The connections between two brokers break, and none can be opened."""
    RESET = "reset"
    """The connections between two brokers break."""
    GIVE_UP = "give up"
    """One broker gives up its connections to the other; what it has sent still arrives."""
    PARTITION = "partition"
    """Nothing gets through between two brokers; what is sent arrives afterwards."""
    ONE_WAY_PARTITION = "one-way partition"
    SLOW_NETWORK = "slow network"
    SESSION_CUT = "session cut"
    """The broker has no connection to ZooKeeper; if that lasts longer than the timeout, it loses
    the session."""
    LOST_ANSWERS = "lost answers"
    """ZooKeeper carries out some writes, and their answers are lost."""
    SLOW_ZOOKEEPER = "slow zookeeper"
    SLOW_SESSION = "slow session"
    """One broker's messages to and from ZooKeeper are slow."""
    CONTROLLER_CHANGE = "controller change"
    """/controller is removed by hand; the controller hears of it later."""
    STALE_ORDERS = "stale orders"
    """The controller's orders to one broker are held up, while another broker restarts twice, the
    controller gives its connection up, and perhaps is replaced; then old orders arrive together
    with new ones."""
    STALE_FETCHES = "stale fetches"
    """This fault and the next three are scripts, see `scripts`."""
    MISSED_LEADERSHIP = "missed leadership"
    STALE_ANSWERS = "stale answers"
    UNNOTICED_RESTART = "unnoticed restart"
    LATE_MARKERS = "late markers"
    """The markers of a transaction coordinator's broker are slow; it gives these connections up and
    sends them again, and the old markers arrive after the new ones. This fault and the next two are
    scheduled only with transactions."""
    LOST_MARKERS = "lost markers"
    """Markers are slow, and the coordinator's broker is restarted meanwhile."""
    SLOW_LOAD = "slow load"
    """A coordinator's broker is restarted, and all background work is slow for a while, including
    the load of the next coordinator."""
    REFUSED_PORT = "refused port"
    """A firewall between a living broker and all others breaks their connections, and refuses new
    ones in its name; clients reach it. It is scheduled only with `broker.death.proof=port`."""
    MOVE_LOG = "move of a log"
    """A replica is to move to another log dir of its broker. This fault and those up to
    `CLOCK_STEP` are scheduled only with `disks`."""
    BROKEN_LOG_DIR = "broken log dir"
    """Every call on a log dir fails; the broker may be restarted without it, and is restarted
    when it works again."""
    FAILED_SYNCS = "failed syncs"
    """Syncs in a log dir fail, as Linux fails them; then the broker is restarted."""
    DELETE_RECORDS = "delete records"
    CLOCK_STEP = "step of the wall clock"
    ELECT_PREFERRED = "elect preferred"
    """An administrator asks for it."""
    REASSIGN = "reassign"
    """Replicas move to other brokers, or elsewhere while a reassignment is under way."""
    CANCEL_REASSIGNMENT = "cancel reassignment"
    CREATE_TOPIC = "create topic"
    DELETE_TOPIC = "delete topic"
    GROW_TOPIC = "grow topic"


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
        if self.kind in BETWEEN_TWO:
            who += f" and {f'broker {self.other}' if self.other else 'the clients'}"
        return f"{self.kind.value}{who}" + (f" for {self.for_ms} ms" if self.for_ms else "")


BETWEEN_TWO = frozenset(
    {
        FaultKind.CUT,
        FaultKind.RESET,
        FaultKind.GIVE_UP,
        FaultKind.PARTITION,
        FaultKind.ONE_WAY_PARTITION,
    }
)

SCRIPT_KINDS = (
    FaultKind.STALE_FETCHES,
    FaultKind.MISSED_LEADERSHIP,
    FaultKind.STALE_ANSWERS,
    FaultKind.UNNOTICED_RESTART,
)
"""The kinds that are scripts."""
SCRIPTED = frozenset(SCRIPT_KINDS)
SCRIPT_AT_MS = 1000
"""The time at which a script begins that is the only fault of its seed."""

_WEIGHTS = {
    FaultKind.KILL: 10,
    FaultKind.QUICK_RESTART: 8,
    FaultKind.LEAVE: 3,
    FaultKind.PAUSE: 8,
    FaultKind.SLOW_DISK: 3,
    FaultKind.CUT: 8,
    FaultKind.RESET: 5,
    FaultKind.GIVE_UP: 6,
    FaultKind.PARTITION: 8,
    FaultKind.ONE_WAY_PARTITION: 8,
    FaultKind.SLOW_NETWORK: 3,
    FaultKind.SESSION_CUT: 10,
    FaultKind.LOST_ANSWERS: 8,
    FaultKind.SLOW_ZOOKEEPER: 4,
    FaultKind.SLOW_SESSION: 6,
    FaultKind.CONTROLLER_CHANGE: 5,
    FaultKind.STALE_ORDERS: 6,
    FaultKind.STALE_FETCHES: 5,
    FaultKind.MISSED_LEADERSHIP: 5,
    FaultKind.STALE_ANSWERS: 5,
    FaultKind.UNNOTICED_RESTART: 5,
    FaultKind.ELECT_PREFERRED: 3,
    FaultKind.REASSIGN: 6,
    FaultKind.CANCEL_REASSIGNMENT: 2,
    FaultKind.CREATE_TOPIC: 2,
    FaultKind.DELETE_TOPIC: 2,
    FaultKind.GROW_TOPIC: 2,
}
_POWER_WEIGHTS = {FaultKind.POWER_LOSS: 12, FaultKind.POWER_LOSS_OF_ALL: 4}
_LOSSY_POWER_WEIGHTS = {
    FaultKind.POWER_LOSS: 12,
    FaultKind.POWER_LOSS_OF_ALL: 1,
    FaultKind.POWER_LOSS_OF_ALL_BUT_ONE: 12,
}
"""The weights without `flush.before.ack`: once all have lost their power little is promised any
more."""

OF_RUNNING = frozenset(
    {
        FaultKind.KILL,
        FaultKind.QUICK_RESTART,
        FaultKind.POWER_LOSS,
        FaultKind.LEAVE,
        FaultKind.PAUSE,
        FaultKind.SLOW_DISK,
        FaultKind.SESSION_CUT,
        FaultKind.LOST_ANSWERS,
        FaultKind.SLOW_SESSION,
        FaultKind.REFUSED_PORT,
        FaultKind.MOVE_LOG,
        FaultKind.BROKEN_LOG_DIR,
        FaultKind.FAILED_SYNCS,
        FaultKind.CLOCK_STEP,
    }
)
"""The kinds that befall a broker only while it runs."""

OF_TRANSACTIONS = (FaultKind.LATE_MARKERS, FaultKind.LOST_MARKERS, FaultKind.SLOW_LOAD)
"""The kinds that are scheduled only with transactions."""

OF_PROOF = (FaultKind.REFUSED_PORT,)
"""The kinds that are scheduled only where a refused port counts as proof."""

OF_DISKS = (
    FaultKind.BROKEN_LOG_DIR,
    FaultKind.FAILED_SYNCS,
    FaultKind.DELETE_RECORDS,
    FaultKind.CLOCK_STEP,
    FaultKind.MOVE_LOG,
)
"""The kinds that are scheduled only where brokers have two log dirs."""

_AT_ONCE = frozenset(
    {
        FaultKind.MOVE_LOG,
        FaultKind.DELETE_RECORDS,
        FaultKind.CLOCK_STEP,
        FaultKind.QUICK_RESTART,
        FaultKind.RESET,
        FaultKind.GIVE_UP,
        FaultKind.LOST_ANSWERS,
        FaultKind.CONTROLLER_CHANGE,
        FaultKind.ELECT_PREFERRED,
        FaultKind.REASSIGN,
        FaultKind.CANCEL_REASSIGNMENT,
        FaultKind.CREATE_TOPIC,
        FaultKind.DELETE_TOPIC,
        FaultKind.GROW_TOPIC,
    }
)

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
SCRIPT_MS = 6000
"""The time for a whole script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The properties that a seed chooses for the whole run."""

    brokers: int
    min_insync_replicas: int
    durable: bool
    """The setting `flush.before.ack`."""
    network_delay_max_ms: int
    zookeeper_delay_max_ms: int
    power_fails: bool

    def __str__(self) -> str:
        return (
            f"{self.brokers} brokers, min.insync.replicas={self.min_insync_replicas}"
            f"{', flush.before.ack' if self.durable else ''}"
            f"{', power fails' if self.power_fails else ''}, network up to"
            f" {self.network_delay_max_ms} ms, zookeeper up to {self.zookeeper_delay_max_ms} ms"
        )


def profile_of(seed: int) -> Profile:
    choose = random.Random(f"profile {seed}")
    if seed < 0:
        # This is one more than the script needs: another broker is the controller.
        return Profile(
            brokers=4,
            min_insync_replicas=choose.choice((1, 2)),
            durable=False,
            network_delay_max_ms=choose.choice((1, 3, 10)),
            zookeeper_delay_max_ms=choose.choice((1, 3, 10)),
            power_fails=False,
        )
    return Profile(
        brokers=choose.choice((3, 3, 3, 4)),
        min_insync_replicas=choose.choice((1, 2, 2)),
        durable=(durable := choose.random() < 0.25),
        network_delay_max_ms=choose.choice((1, 3, 10, 40)),
        zookeeper_delay_max_ms=choose.choice((1, 3, 10, 40)),
        power_fails=durable or choose.random() < 0.25,
    )


def schedule_of(seed: int, *, seconds: int) -> list[Fault]:
    """Return the faults of a seed's run, by time; those of a longer run begin with those of a
    shorter one. Each seed below 0 has one script alone, a different one in turn."""
    profile = profile_of(seed)
    choose = random.Random(f"faults {seed}")
    if seed < 0:
        kind = SCRIPT_KINDS[-seed % len(SCRIPT_KINDS)]
        script_seed = choose.getrandbits(32)
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
    weights = dict(_WEIGHTS)
    if profile.power_fails:
        weights |= _POWER_WEIGHTS if profile.durable else _LOSSY_POWER_WEIGHTS
    kinds = list(weights)
    # Each seed has its own weights, so that some have many faults of one kind and none of another.
    likely = [weights[kind] * choose.choice((0, 0.3, 1, 1, 3)) for kind in kinds]
    if not any(likely):
        likely = [1.0] * len(kinds)
    brokers = range(1, profile.brokers + 1)
    faults: list[Fault] = []
    at_ms = 0
    mean_pause_ms = choose.choice(MEAN_PAUSE_MS)
    while True:
        at_ms += int(choose.expovariate(1 / mean_pause_ms))
        if at_ms >= seconds * 1000:
            return faults
        (kind,) = choose.choices(kinds, likely)
        broker = choose.choice(brokers)
        others = [b for b in (0, *brokers, *brokers) if b != broker]
        faults.append(
            Fault(
                number=len(faults) + 1,
                at_ms=at_ms,
                kind=kind,
                broker=broker,
                other=choose.choice(others),
                for_ms=_duration_ms(kind, choose),
                seed=choose.getrandbits(32),
            )
        )


def marker_faults_of(seed: int, *, seconds: int) -> list[Fault]:
    """Return the faults that are added with transactions, from a generator of its own, so that the
    rest of the schedule is the same without."""
    choose = random.Random(f"marker faults {seed}")
    return _evenly(
        choose,
        FIRST_OF_TRANSACTIONS,
        MARKERS_PAUSE_MS,
        seconds=seconds,
        kind_of=lambda: choose.choice(OF_TRANSACTIONS),
        duration_ms=lambda _: choose.randint(200, 4000),
    )


def port_faults_of(seed: int, *, brokers: int, seconds: int) -> list[Fault]:
    """Return the faults that are added where a refused port counts as proof, from a generator of
    its own."""
    choose = random.Random(f"port faults {seed}")
    return _evenly(
        choose,
        FIRST_OF_PORTS,
        PORTS_PAUSE_MS,
        seconds=seconds,
        kind_of=lambda: FaultKind.REFUSED_PORT,
        duration_ms=lambda _: choose.randint(500, 3000),
        brokers=brokers,
    )


def disk_faults_of(seed: int, *, brokers: int, seconds: int) -> list[Fault]:
    """Return the faults that are added where brokers have two log dirs, from generators of
    their own. Power is lost during all of them."""
    kinds = [FaultKind.POWER_LOSS, *(kind for kind in OF_DISKS if kind is not FaultKind.MOVE_LOG)]
    choose, movers = random.Random(f"disk faults {seed}"), random.Random(f"moves {seed}")
    likely = [choose.choice((0.3, 1, 3)) for _ in kinds]
    found: list[Fault] = []
    for generator, first, pause_ms, kind_of in (
        (choose, FIRST_OF_DISKS, DISKS_PAUSE_MS, lambda: choose.choices(kinds, likely)[0]),
        (movers, FIRST_OF_MOVES, movers.choice(MOVES_PAUSES_MS), lambda: FaultKind.MOVE_LOG),
    ):
        found += _evenly(
            generator,
            first,
            pause_ms,
            seconds=seconds,
            kind_of=kind_of,
            duration_ms=partial(_duration_ms, choose=generator),
            brokers=brokers,
            least_pause_ms=1,
        )
    return found


def _evenly(
    choose: random.Random,
    first: int,
    pause_ms: int,
    *,
    seconds: int,
    kind_of: Callable[[], FaultKind],
    duration_ms: Callable[[FaultKind], int],
    brokers: int = 0,
    least_pause_ms: int = 0,
) -> list[Fault]:
    """Return faults, numbered from `first`, with that mean pause; `brokers` 0: all of the first
    broker."""
    faults: list[Fault] = []
    at_ms = 0
    while True:
        at_ms += least_pause_ms + int(choose.expovariate(1 / pause_ms))
        if at_ms >= seconds * 1000:
            return faults
        kind = kind_of()
        faults.append(
            Fault(
                number=first + len(faults),
                at_ms=at_ms,
                kind=kind,
                broker=choose.randint(1, brokers) if brokers else 1,
                for_ms=duration_ms(kind),
                seed=choose.getrandbits(32),
            )
        )


def _duration_ms(kind: FaultKind, choose: random.Random) -> int:
    """Return a duration: mostly a short one, sometimes longer than a session lives."""
    if kind in _AT_ONCE:
        return 0
    if kind in SCRIPTED:
        return SCRIPT_MS
    duration_ms = min(LONGEST_MS, 5 + int(choose.lognormvariate(5.8, 1.3)))
    if kind is FaultKind.SESSION_CUT and duration_ms % 2:
        # Half of them are long enough to lose the session.
        duration_ms += SESSION_MS
    return duration_ms
