"""R-CTL12: machines that go dark, hang, or have a bad line. The session decides, nothing that was
acknowledged is lost or doubled, and no broker is deposed that ZooKeeper hears.
"""

import time
from collections.abc import Callable

import pytest

from benchmarks.machines.machine_cluster import MachineCluster
from benchmarks.machines.machines import Cut, Machine
from integration_tests.machines.on_machines import cluster_on_machines, needs_loss
from integration_tests.support.cluster_support import (
    HEALED_S,
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
)
from integration_tests.support.steady_producer import SteadyProducer, acknowledged_more, check_kept
from storage_engine.tests.sampling import in_full

SESSION_MS = 4_000
BAD_S = 20
"""How long a line is bad: several sessions."""
SHORT_S = 1
"""How long a machine may stand still."""
LOST = "zookeeper session state=lost"


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Three machines with a broker and a ZooKeeper each."""
    settings = {"zookeeper.session.timeout.ms": str(SESSION_MS), "min.insync.replicas": "2"}
    with cluster_on_machines(tmp_path_factory.mktemp("quick"), settings) as cluster:
        yield cluster


def sessions_lost(cluster: MachineCluster, *broker_ids: int) -> int:
    return sum(cluster.log(each).count(LOST) for each in broker_ids)


def new_topic(cluster: MachineCluster, name: str) -> int:
    """Returns the leader of a topic whose replicas are all in sync."""
    create_topic(cluster, name)
    client = admin(cluster)
    wait_for_isr(client, name, 3)
    return leader_of(client, name)


def restart(cluster: MachineCluster, number: int) -> None:
    """Start the processes of a machine that lost its power."""
    cluster.start_zookeeper(number)
    cluster.start_broker(number)


def power_off(cluster: MachineCluster, number: int) -> None:
    cluster.power_off(number)


def of_machine(change: Callable[[Machine], None]) -> Callable[[MachineCluster, int], None]:
    return lambda cluster, number: change(cluster.machine(number))


Change = Callable[[MachineCluster, int], None]
DARK: dict[str, tuple[Change, Change]] = {
    "unplugged": (of_machine(Machine.unplug), of_machine(Machine.plug_in)),
    "frozen": (of_machine(Machine.freeze), of_machine(Machine.thaw)),
    "unheard": (of_machine(lambda machine: machine.cut(Cut.SENT)), of_machine(Machine.mend)),
    "deaf": (of_machine(lambda machine: machine.cut(Cut.RECEIVED)), of_machine(Machine.mend)),
    "powered-off": (power_off, restart),
}
BY_DEFAULT = "unplugged"


@pytest.mark.parametrize(
    "name", [each if each == BY_DEFAULT else pytest.param(each, marks=in_full) for each in DARK]
)
def test_the_leaders_of_a_dark_machine_are_replaced_and_nothing_is_lost(quick, name):
    darken, mend = DARK[name]
    dark = new_topic(quick, name)
    others = [each for each in (1, 2, 3) if each != dark]
    before = sessions_lost(quick, *others)
    with SteadyProducer(quick.bootstrap_servers, name) as producer:
        acknowledged_more(producer, HEALED_S)
        darken(quick, dark)
        try:
            acknowledged_more(producer, HEALED_S)
            assert leader_of(admin(quick), name) != dark
        finally:
            mend(quick, dark)
        wait_for_isr(admin(quick), name, 3)
        acknowledged_more(producer, HEALED_S)
        check_kept(quick.bootstrap_servers, name, producer)
    assert sessions_lost(quick, *others) == before


BAD: dict[str, Callable[[Machine], None]] = {
    "slow": lambda machine: machine.slow_down("8mbit"),
    "lossy": lambda machine: machine.lose(5),
}


@in_full
@pytest.mark.parametrize("name", BAD)
def test_nobody_is_deposed_by_a_bad_line(quick, name):
    if name == "lossy":
        needs_loss()
    leader = new_topic(quick, name)
    before = sessions_lost(quick, 1, 2, 3)
    with SteadyProducer(quick.bootstrap_servers, name) as producer:
        acknowledged_more(producer, HEALED_S)
        BAD[name](quick.machine(leader))
        try:
            time.sleep(BAD_S)
            acknowledged_more(producer, HEALED_S)
        finally:
            quick.machine(leader).mend()
        wait_for_isr(admin(quick), name, 3)
        check_kept(quick.bootstrap_servers, name, producer)
    assert sessions_lost(quick, 1, 2, 3) == before


def test_a_short_freeze_of_a_machine_deposes_nobody(quick):
    leader = new_topic(quick, "short-freeze")
    before = sessions_lost(quick, 1, 2, 3)
    with SteadyProducer(quick.bootstrap_servers, "short-freeze") as producer:
        acknowledged_more(producer, HEALED_S)
        quick.machine(leader).freeze()
        time.sleep(SHORT_S)
        quick.machine(leader).thaw()
        acknowledged_more(producer, HEALED_S)
        check_kept(quick.bootstrap_servers, "short-freeze", producer)
    assert sessions_lost(quick, 1, 2, 3) == before
