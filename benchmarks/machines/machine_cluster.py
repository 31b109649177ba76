"""A ZooKeeper ensemble and brokers on machines of their own (`benchmarks.machines.machines`)."""

import contextlib
import re
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.machines.controller_log import LISTED_BROKERS
from benchmarks.machines.machines import Machine, MachineProcess, Network, network
from storage_engine.tools.errors import CommandError
from storage_engine.tools.inspection.state_change_log import FILE_NAME as STATE_CHANGES
from storage_engine.zookeeper.server.java import find_java
from storage_engine.zookeeper.server.program import (
    MAIN_CLASS,
    class_path,
    embedded_options,
    is_serving,
)

PORT = 9092
METRICS_PORT = 9404
CLIENT_PORT = 2181
_PEER_PORT, _ELECTION_PORT = 2888, 3888
_INIT_LIMIT_MS = 10_000
ROOT = Path(__file__).parents[2]
START_S = 90.0

Settings = Mapping[str, str]


class MachineCluster:
    """Machine i has server i of ZooKeeper, broker i, or both; with `homes`, several brokers."""

    def __init__(
        self,
        folder: Path,
        machines: Network,
        settings: Settings,
        *,
        zookeepers: tuple[int, ...],
        tick_ms: int,
        sync_limit_ms: int,
        homes: Mapping[int, int] | None = None,
    ) -> None:
        """`settings`: of all brokers. `homes`: broker -> its machine; None: that of its number."""
        self._homes = homes
        self.folder = folder
        self._network = machines
        self._settings = settings
        self._zookeepers = zookeepers
        self._tick_ms = tick_ms
        self._sync_limit_ms = sync_limit_ms
        self._machines: dict[int, Machine] = {}
        self._servers: dict[int, MachineProcess] = {}
        self._brokers: dict[int, MachineProcess] = {}

    def machine(self, number: int) -> Machine:
        """Return a machine; it is made when it is asked for first."""
        if number not in self._machines:
            self._machines[number] = self._network.machine(number)
        return self._machines[number]

    @property
    def connect(self) -> str:
        """The value for `zookeeper.connect`."""
        return ",".join(f"{self.machine(each).address}:{CLIENT_PORT}" for each in self._zookeepers)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join("{}:{}".format(*self.address(each)) for each in sorted(self._brokers))

    def address(self, broker_id: int) -> tuple[str, int]:
        """Return where a broker listens."""
        if self._homes is None:
            return self.machine(broker_id).address, PORT
        return self.machine(self._homes[broker_id]).address, PORT + broker_id

    def _metrics_address(self, broker_id: int) -> str:
        if self._homes is None:
            return f"{self.machine(broker_id).address}:{METRICS_PORT}"
        return f"{self.machine(self._homes[broker_id]).address}:{METRICS_PORT + broker_id}"

    # -- ZooKeeper -----------------------------------------------------------------------------

    def start_zookeeper(self, number: int) -> None:
        machine = self.machine(number)
        folder = self.folder / f"zookeeper-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "myid").write_text(f"{number}\n")
        peers = "".join(
            f"server.{each}={self.machine(each).address}:{_PEER_PORT}:{_ELECTION_PORT}\n"
            for each in self._zookeepers
        )
        config = folder / "zoo.cfg"
        config.write_text(
            # The limits are counted in ticks.
            f"tickTime={self._tick_ms}\ninitLimit={_INIT_LIMIT_MS // self._tick_ms}\n"
            f"syncLimit={self._sync_limit_ms // self._tick_ms}\n"
            "minSessionTimeout=1000\nmaxSessionTimeout=60000\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n"
            f"dataDir={folder}\nclientPort={CLIENT_PORT}\n{peers}"
        )
        options = embedded_options(folder, unsafe_no_fsync=False)
        self._servers[number] = machine.start(
            [find_java(), *options, "-cp", class_path(), MAIN_CLASS, config],
            output=folder / "zookeeper.log",
            folder=folder,
        )

    def until_zookeeper_serves(self) -> None:
        for number in self._zookeepers:
            serves = partial(is_serving, self.machine(number).address, CLIENT_PORT)
            _until(serves, f"ZooKeeper {number} serves")

    def zookeeper_leader(self) -> int:
        """Return the server that leads the ensemble."""
        return _until(self._leader, "ZooKeeper has a leader")

    def _leader(self) -> int:
        for number in self._zookeepers:
            if "Mode: leader" in _srvr(self.machine(number).address):
                return number
        return 0

    # -- brokers -------------------------------------------------------------------------------

    def start_broker(
        self, broker_id: int, *, is_waited_for: bool = True, within: Sequence[str] = ()
    ) -> None:
        """Start a broker on its machine, by the command `within`; wait until the cluster knows
        it."""
        machine = self.machine(broker_id if self._homes is None else self._homes[broker_id])
        folder = self._folder_of(broker_id)
        folder.mkdir(exist_ok=True)
        host, port = self.address(broker_id)
        shared = {} if self._homes is None else {"broker.host.name": f"host-{machine.number}"}
        given = {
            **shared,
            "broker.id": str(broker_id),
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": self.connect,
            "listeners": f"PLAINTEXT://{host}:{port}",
            "zookeeper.connection.timeout.ms": "60000",
            "metrics.listener": self._metrics_address(broker_id),
            "metrics.listener.allow.remote": "true",
            **self._settings,
        }
        file = folder / "server.properties"
        file.write_text("".join(f"{key}={text}\n" for key, text in given.items()))
        started_at = len(self.log(broker_id))
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", "broker", str(file)]
        self._brokers[broker_id] = machine.start(
            ["env", f"PYTHONPATH={ROOT}", *within, *command, "--log-file", folder / "broker.log"],
            output=folder / "output",
            folder=folder,
        )
        if is_waited_for:
            self.until_joined(broker_id, started_at)

    def until_joined(self, broker_id: int, started_at: int = 0) -> None:
        """Wait until a broker, whose log had that length at its start, is registered and known."""

        def has_joined() -> bool:
            log = self.log(broker_id)
            if self._brokers[broker_id].poll() is not None:
                raise CommandError(f"broker {broker_id} has ended: {log[-2000:]}")
            return f"registered broker={broker_id} " in log[started_at:] and self._is_known(
                broker_id
            )

        _until(has_joined, f"broker {broker_id} joins")

    def _is_known(self, broker_id: int) -> bool:
        told = filter(None, (LISTED_BROKERS.findall(self.log(each)) for each in self._brokers))
        return any(str(broker_id) in known[-1].split(", ") for known in told)

    def broker(self, broker_id: int) -> MachineProcess:
        return self._brokers[broker_id]

    def broker_pids(self) -> dict[int, int]:
        """Return the process of each broker that was started, by its last start."""
        return {broker: process.pid for broker, process in list(self._brokers.items())}

    def zookeeper_pids(self) -> list[int]:
        """Return the processes of ZooKeeper, as they were started last."""
        return [process.pid for process in list(self._servers.values())]

    def kill_broker(self, broker_id: int) -> None:
        process = self._brokers[broker_id]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def metric(self, broker_id: int, name: str) -> float:
        """Return a metric without labels of a broker."""
        address = self._metrics_address(broker_id)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=START_S) as answer:
            text = answer.read().decode()
        return float(re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)[0])

    def departures(self) -> int:
        """Return how often a controller wrote a list of living brokers that lacks one."""
        told = (found for each in self._brokers for found in LISTED_BROKERS.findall(self.log(each)))
        return sum(len(found.split(", ")) < len(self._brokers) for found in told)

    def power_off(self, number: int) -> None:
        """Power off a machine with all that is on it, and make it anew, with no processes."""
        self._machines.pop(number).power_off()

    def log(self, broker_id: int) -> str:
        """Return what the broker has written so far, wherever."""
        folder = self._folder_of(broker_id)
        files = [folder / "broker.log", folder / "output"]
        return "\n".join(each.read_text(errors="replace") for each in files if each.exists())

    def state_changes(self, broker_id: int) -> Path:
        """Return the file of a broker's state changes."""
        return self._folder_of(broker_id) / STATE_CHANGES

    def _folder_of(self, broker_id: int) -> Path:
        return self.folder / f"broker-{broker_id}"


@contextlib.contextmanager
def machine_cluster(
    folder: Path,
    settings: Settings,
    *,
    brokers: tuple[int, ...] = (1, 2, 3),
    zookeepers: tuple[int, ...] = (1, 2, 3),
    tick_ms: int = 500,
    sync_limit_ms: int = 2_000,
) -> Iterator[MachineCluster]:
    """Return brokers that have joined, three machines by default; all are gone after the block.
    `sync_limit_ms`: so long the servers of ZooKeeper wait for one another."""
    with network() as machines:
        cluster = MachineCluster(
            folder,
            machines,
            settings,
            zookeepers=zookeepers,
            tick_ms=tick_ms,
            sync_limit_ms=sync_limit_ms,
        )
        for number in zookeepers:
            cluster.start_zookeeper(number)
        cluster.until_zookeeper_serves()
        for broker_id in brokers:
            cluster.start_broker(broker_id, is_waited_for=False)
        for broker_id in brokers:
            cluster.until_joined(broker_id)
        yield cluster


def _srvr(address: str) -> str:
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((address, CLIENT_PORT), 1) as asked:
        asked.sendall(b"srvr")
        while chunk := asked.recv(4096):
            answer += chunk
    return answer.decode(errors="replace")


def _until(condition: Callable[[], int], what: str) -> int:
    deadline_s = time.monotonic() + START_S
    while not (found := condition()):
        if time.monotonic() > deadline_s:
            raise CommandError(f"not within {START_S:.0f} s: {what}")
        time.sleep(0.05)
    return found
