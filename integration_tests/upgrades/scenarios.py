"""What is done to a cluster of three brokers, step by step; `work` is called between the steps.

Each begins with brokers of `old`, and ends with all of them in sync.
"""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from integration_tests.features.mixed_cluster import ROOT, MixedCluster
from integration_tests.support.command_line import succeed
from storage_engine.tests.sampling import SEED

BROKERS = (1, 2, 3)
Work = Callable[[], None]
Scenario = Callable[[MixedCluster, Path, Work], None]


def restarted(cluster: MixedCluster, old: Path, work: Work) -> None:
    """All brokers are down at the same time, and come back with their own version."""
    for broker in BROKERS:
        cluster.stop(broker)
    cluster.start(*BROKERS, code=old)
    cluster.wait_whole()
    work()


def upgraded(cluster: MixedCluster, old: Path, work: Work) -> None:
    """Broker by broker; then the services, and the features."""
    _move(cluster, BROKERS, ROOT, work)
    cluster.services = ROOT
    work()
    succeed("features", "upgrade", "--bootstrap-server", cluster.bootstrap_servers, "--all")
    work()


def half_upgraded_for_a_while(cluster: MixedCluster, old: Path, work: Work) -> None:
    """Each of the versions has the controller for a while, and loses a broker."""
    _move(cluster, BROKERS[:2], ROOT, work)
    for _ in range(2):
        broker = cluster.controller()
        code = cluster.code_of(broker)
        cluster.stop(broker, signum=signal.SIGKILL)
        work()
        cluster.start(broker, code=code)
        cluster.wait_whole()
        work()
    _move(cluster, BROKERS[2:], ROOT, work)


def rolled_back(cluster: MixedCluster, old: Path, work: Work) -> None:
    """All are upgraded, work, and go back, before a feature was raised."""
    _move(cluster, BROKERS, ROOT, work)
    _move(cluster, BROKERS, old, work)


def drained(cluster: MixedCluster, old: Path, work: Work) -> None:
    """A broker of the present version takes the place of one that leaves."""
    _move(cluster, BROKERS, ROOT, work)
    cluster.start(4)
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    succeed("drain", "1", *at, "--state", cluster.folder / "drain.json")
    work()
    cluster.stop(1)
    cluster.wait_whole()
    work()


def _move(cluster: MixedCluster, brokers: tuple[int, ...], code: Path, work: Work) -> None:
    for broker in brokers:
        cluster.restart(broker, code)
        cluster.wait_whole()
        work()


SCENARIOS: tuple[Scenario, ...] = (
    restarted,
    upgraded,
    half_upgraded_for_a_while,
    rolled_back,
    drained,
)


def killed_before_its_stop(cluster: MixedCluster, broker: int) -> None:
    cluster.stop(broker, signum=signal.SIGKILL)


def killed_amid_its_stop(cluster: MixedCluster, broker: int) -> None:
    """While others take over what it leads."""
    cluster.signal(broker, signal.SIGTERM)
    time.sleep(_CHANCE.uniform(0, 0.5))
    cluster.stop(broker, signum=signal.SIGKILL)


def killed_amid_its_start(cluster: MixedCluster, broker: int) -> None:
    cluster.stop(broker)
    cluster.begin(broker)
    time.sleep(_CHANCE.uniform(0.3, 3))
    cluster.stop(broker, signum=signal.SIGKILL)


def killed_while_it_catches_up(cluster: MixedCluster, broker: int) -> None:
    cluster.restart(broker)
    cluster.stop(broker, signum=signal.SIGKILL)


def another_killed_while_it_is_down(cluster: MixedCluster, broker: int) -> None:
    """The controller where it is another: no partition has enough replicas for `acks=all`."""
    cluster.stop(broker)
    other = cluster.controller()
    code = cluster.code_of(other)
    cluster.stop(other, signum=signal.SIGKILL)
    cluster.start(other, code=code)


MOMENTS = (
    killed_before_its_stop,
    killed_amid_its_stop,
    killed_amid_its_start,
    killed_while_it_catches_up,
    another_killed_while_it_is_down,
)
_CHANCE = random.Random(SEED)


def upgraded_amid_kills(
    cluster: MixedCluster, moment: Callable[[MixedCluster, int], None], work: Work
) -> None:
    """An upgrade in which a broker is killed at that moment of each step."""
    for broker in BROKERS:
        moment(cluster, broker)
        cluster.start(broker)
        cluster.wait_whole()
        work()
