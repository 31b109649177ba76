"""Proof that another broker's process is dead, and the order in which brokers act on it.

The proof is a process of this machine that was seen alive as the one that the broker named, and
that the kernel then reported as ended. A pid that no process has proves nothing: a machine that
was cloned with its memory has the boot id and the namespaces of the other one.

Across machines nothing is exact. A cluster may choose to accept as proof a connection that
the other kernel has ended, and a port that refuses every new one for a while. A firewall, a proxy
or a closed listener can look alike, so that a living broker may be taken for dead.
"""

import enum
from collections.abc import Collection

from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import PortAnswer, ProcessIdentity

STEP_MS = 50
"""The delay from one broker to the next: longer than it takes to close a session."""
MAX_STEPS = 20
"""The longest delay in steps: in a large cluster the last brokers act together, after a second."""


def may_be_local(own: ProcessIdentity | None, other: ProcessIdentity | None) -> bool:
    """Whether the pid of `other` means the same process to both: same boot, same namespaces."""
    if own is None or other is None:
        return False
    return (own.boot_id, own.pid_namespace, own.time_namespace) == (
        other.boot_id,
        other.pid_namespace,
        other.time_namespace,
    )


def is_same_process(named: ProcessIdentity, start_ticks: int) -> bool:
    """Whether the process that has the pid of `named` now, started at `start_ticks`, is `named`."""
    return named.start_ticks == start_ticks


def closing_delay_ms(
    own: BrokerId, controller: BrokerId | None, living: Collection[BrokerId]
) -> int:
    """How long a broker waits before it closes a dead one's session, so that not all do at once:
    the controller acts first, which has to act anyway, the others in the order of their ids.
    `living`: the brokers that may have the same proof."""
    order = sorted({own, *living}, key=lambda broker: (broker != controller, broker))
    return min(order.index(own), MAX_STEPS) * STEP_MS


PROBES = 5
PROBE_INTERVAL_MS = 100
"""All probes of a port together last as long as it takes to restart a listener in place."""


class PortVerdict(enum.Enum):
    """The conclusion from the answers to the probes so far."""

    LIVES = "lives"
    """Or unknown: the broker's session with ZooKeeper decides."""
    ASK_AGAIN = "ask again"
    DEAD = "dead"


class RefusedPort:
    """The probes of one port, from the end of a connection on."""

    def __init__(self) -> None:
        self._refusals = 0

    def probed(self, answer: PortAnswer) -> PortVerdict:
        """Count one more answer; only refusals in a row prove anything."""
        if answer is not PortAnswer.REFUSED:
            return PortVerdict.LIVES
        self._refusals += 1
        return PortVerdict.DEAD if self._refusals >= PROBES else PortVerdict.ASK_AGAIN


def is_of_the_majority(answering: int, brokers: int) -> bool:
    """Whether a broker may trust refused ports: with itself, more than half of all `brokers`
    answer it. Otherwise it is more likely that this broker is cut off."""
    return (answering + 1) * 2 > brokers
