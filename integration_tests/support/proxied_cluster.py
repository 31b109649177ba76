"""Three brokers, each behind a proxy of its own and with a way of its own to ZooKeeper, so that any
of them can be cut off.

Requests to a broker come through its proxy (it advertises no other address), from clients and from
brokers alike; its requests to other brokers go through theirs.
"""

import contextlib
import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from integration_tests.support.cluster_support import FEW_GROUPS, SESSION_TIMEOUT_MS, wait_until
from integration_tests.support.fault_proxy import FaultProxy
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.local.broker_process import BrokerProcess
from storage_engine.tools.local.cluster_file import BrokerEntry
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.local.serving import ask_metadata
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper, attach_embedded, start_embedded

IDS = (1, 2, 3)


class ProxiedCluster:
    """Use `running_proxied_cluster`."""

    def __init__(
        self,
        cluster: LocalCluster,
        directory: Path,
        to_brokers: dict[int, FaultProxy],
        to_zookeeper: dict[int, FaultProxy],
    ) -> None:
        self.to_brokers = to_brokers
        self.to_zookeeper = to_zookeeper
        self.entries: dict[int, BrokerEntry] = {e.id: e for e in cluster.state.brokers}
        self._processes = {e.id: BrokerProcess(directory, e) for e in cluster.state.brokers}
        self._zookeeper_dir = directory.parent / "zookeeper"

    @property
    def bootstrap_servers(self) -> str:
        """By the proxies."""
        return ",".join(proxy.address for proxy in self.to_brokers.values())

    def start(self, broker: int) -> None:
        """Start it and wait until it knows the whole cluster, whoever is alive."""
        self._processes[broker].start()
        self.wait_until_known(broker)

    def wait_until_known(self, broker: int) -> None:
        entry = self.entries[broker]
        wait_until(functools.partial(_knows_itself, entry), f"broker {broker} serves")

    def kill(self, broker: int) -> None:
        self._processes[broker].kill()

    def stop(self, broker: int) -> None:
        """Controlled shutdown."""
        self._processes[broker].stop(timeout_s=60)

    def pause(self, broker: int) -> None:
        """SIGSTOP: as a machine that hangs."""
        self._signal(broker, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        self._signal(broker, signal.SIGCONT)

    def hold(self, broker: int, *, to_target: bool = True, from_target: bool = True) -> None:
        """Let nothing arrive in those directions of what the broker is asked and asks
        ZooKeeper."""
        self.to_brokers[broker].hold(to_target=to_target, from_target=from_target)
        self.to_zookeeper[broker].hold(to_target=from_target, from_target=to_target)

    def heal(self) -> None:
        for proxy in (*self.to_brokers.values(), *self.to_zookeeper.values()):
            proxy.heal()

    def restore(self) -> None:
        """After a test, however it ended: no faults, all brokers run."""
        self.heal()
        for broker, process in self._processes.items():
            if process.find() is None:
                self.start(broker)
            else:
                self.resume(broker)

    def restart_zookeeper(self) -> None:
        server = attach_embedded(self._zookeeper_dir)
        assert server is not None
        server.stop()
        start_embedded(self._zookeeper_dir, port=server.port, unsafe_no_fsync=True)

    def _signal(self, broker: int, number: signal.Signals) -> None:
        pid = self._processes[broker].find()
        assert pid is not None
        os.kill(pid, number)


def _knows_itself(entry: BrokerEntry) -> bool:
    try:
        return entry.id in ask_metadata(entry, topics=[]).brokers
    except HeadraceError:
        return False


@contextlib.contextmanager
def running_proxied_cluster(directory: Path) -> Iterator[ProxiedCluster]:
    """A cluster that is gone after the block, whatever happens in it."""
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(zookeeper_of_its_own(directory / "zookeeper"))
        to_zookeeper = {
            broker: stack.enter_context(FaultProxy(("127.0.0.1", zookeeper.port))) for broker in IDS
        }
        request = UpRequest(
            brokers=len(IDS),
            port=0,
            zookeeper=zookeeper.connect,
            settings=(*FEW_GROUPS, ("zookeeper.session.timeout.ms", str(SESSION_TIMEOUT_MS))),
        )
        running = stack.enter_context(LocalCluster.running(directory / "brokers", request))
        to_brokers = {
            entry.id: stack.enter_context(FaultProxy((entry.host, entry.port)))
            for entry in running.state.brokers
        }
        cluster = ProxiedCluster(running, directory / "brokers", to_brokers, to_zookeeper)
        for broker, entry in cluster.entries.items():
            config = directory / "brokers" / entry.config
            text = config.read_text()
            assert zookeeper.connect in text
            running.stop_broker(broker)
            text = text.replace(zookeeper.connect, to_zookeeper[broker].address)
            config.write_text(
                f"{text}\nadvertised.listeners=PLAINTEXT://{to_brokers[broker].address}\n"
            )
            # Not by the cluster, which would write its own addresses.
            cluster.start(broker)
        try:
            yield cluster
        finally:
            # To hand over one after the other takes them seconds.
            for broker in IDS:
                cluster.kill(broker)


@contextlib.contextmanager
def zookeeper_of_its_own(directory: Path) -> Iterator[EmbeddedZooKeeper]:
    """An embedded server that the brokers of a cluster don't own."""
    server = start_embedded(directory, unsafe_no_fsync=True)
    try:
        yield server
    finally:
        running = attach_embedded(directory)
        if running is not None:
            running.stop()
