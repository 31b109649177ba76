"""R-REP11: a server of ZooKeeper goes dark, and the brokers that were connected to it live on other
machines: they reach another server before their sessions end, and none is deposed.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.machines.machine_cluster import MachineCluster
from integration_tests.machines.on_machines import cluster_on_machines
from integration_tests.support.cluster_support import wait_until

SESSION_MS = 2_500
"""What docs/failover.md recommends for brokers on several machines."""
SERVERS = (1, 2, 3)
BROKERS = (4, 5, 6)
LOST = "zookeeper session state=lost"
CONNECTED = "zookeeper session state=connected"
ASKED = re.compile(r"Connecting to [\d.]+\(([\d.]+)\)")


DEFAULT_SESSION_MS = 6_000
"""Without ZooKeeper's leader nobody answers for the whole of syncLimit, 2 s, and the election after
it: a busy machine needs more than what a shorter session leaves."""


@pytest.fixture
def apart(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MachineCluster]:
    """Brokers and servers of ZooKeeper, each on a machine of its own; of sessions of so many ms."""
    settings = {"zookeeper.session.timeout.ms": str(request.param)}
    with cluster_on_machines(
        tmp_path,
        settings,
        brokers=BROKERS,
        zookeepers=SERVERS,
        tick_ms=200,
    ) as cluster:
        yield cluster


def connected_to(cluster: MachineCluster, broker: int) -> int:
    """The server that a broker is connected to; 0 while it is connected to none."""
    log = cluster.log(broker)
    _, _, after = log.rpartition("Connecting to ")
    if CONNECTED not in after:
        return 0
    address = ASKED.findall(log)[-1]
    return next(each for each in SERVERS if cluster.machine(each).address == address)


@pytest.mark.parametrize("apart", [SESSION_MS], indirect=True)
def test_brokers_whose_zookeeper_goes_dark_keep_their_sessions(apart):
    before = apart.departures()
    for dark in SERVERS:
        if dark == apart.zookeeper_leader():
            continue
        clients = [each for each in BROKERS if connected_to(apart, each) == dark]
        apart.machine(dark).unplug()
        for broker in clients:
            wait_until(
                lambda broker=broker, dark=dark: connected_to(apart, broker) not in (0, dark),
                f"broker {broker} has left ZooKeeper {dark}",
            )
        apart.machine(dark).plug_in()
        apart.until_zookeeper_serves()
    assert [apart.log(each).count(LOST) for each in BROKERS] == [0, 0, 0]
    assert apart.departures() == before


@pytest.mark.parametrize("apart", [DEFAULT_SESSION_MS], indirect=True)
def test_brokers_keep_their_sessions_where_zookeepers_leader_goes_dark(apart):
    dark = apart.zookeeper_leader()
    before = {each: apart.log(each).count(CONNECTED) for each in BROKERS}
    apart.machine(dark).unplug()
    try:
        for broker in BROKERS:
            wait_until(
                lambda broker=broker: (
                    apart.log(broker).count(CONNECTED) > before[broker]
                    and connected_to(apart, broker) not in (0, dark)
                ),
                f"broker {broker} is connected to a server that is left",
            )
    finally:
        apart.machine(dark).plug_in()
    assert [apart.log(each).count(LOST) for each in BROKERS] == [0, 0, 0]
