"""The steps of the benchmark of many brokers on three hosts, one after the other on one cluster."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.beside_kafka.processor_time import check_proc
from benchmarks.machines.controller_log import Noticed, last_election_s, noticed
from benchmarks.machines.machine_cluster import MachineCluster
from benchmarks.machines.machines import network
from benchmarks.machines.processor_times import ProcessorTimes
from benchmarks.support.failover_clients import Survivors
from benchmarks.support.rounds import rounded
from storage_engine.client.admin.reassignment import elect_leaders
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import HeadraceError
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.metadata import MetadataPartition
from storage_engine.tools.errors import CommandError

HOSTS = (1, 2, 3)
PARTITIONS_PER_TOPIC = 1000
MOST_CPU_S = 6.0
"""The goal for a lost host: the work of three seconds of two cores."""
MOST_UNEVEN = 1.1

_READY_MS = 600_000
_POLL_S = 0.25
_IDLE_S = 10.0
_SETTLED_S = 10.0
_PROBE_MS = 2_000
_TICK_MS = 500
_SYNC_LIMIT_MS = 10_000
_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "auto.leader.rebalance.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A step, or an amount beside its limit."""

    what: str
    seconds: float | None = None
    brokers_cpu_s: float | None = None
    controller_cpu_s: float | None = None
    """The part of the brokers' that the controller took."""
    zookeeper_cpu_s: float | None = None
    amount: float | None = None
    limit: float | None = None
    unit: str | None = None
    met: bool | None = None


def measure(
    folder: Path,
    brokers: int,
    partitions: int,
    settings: Mapping[str, str],
    progress: Callable[[str], None],
) -> Iterator[Row]:
    """Yield one row after the other. `settings`: of all brokers, above those of the benchmark."""
    check_proc()
    # Hosts get neighbouring numbers, as people give them.
    share = brokers // len(HOSTS)
    homes = {broker: 1 + (broker - 1) // share for broker in range(1, brokers + 1)}
    with network() as machines:
        cluster = MachineCluster(
            folder,
            machines,
            {**_SETTINGS, **settings},
            zookeepers=HOSTS,
            tick_ms=_TICK_MS,
            sync_limit_ms=_SYNC_LIMIT_MS,
            homes=homes,
        )
        for row in _Steps(cluster, homes, partitions).all():
            progress(_line(row))
            yield row


def _line(row: Row) -> str:
    if row.amount is not None:
        return f"{row.what}: {row.amount} {row.unit}"
    spent = f"brokers {row.brokers_cpu_s} s, of it the controller {row.controller_cpu_s} s"
    return f"{row.what}: {row.seconds} s; processor time: {spent}"


class _Steps:
    """All steps on one cluster."""

    def __init__(self, cluster: MachineCluster, homes: dict[int, int], partitions: int) -> None:
        self._cluster = cluster
        self._homes = homes
        self._topics = {
            f"hosts-{first // PARTITIONS_PER_TOPIC + 1}": min(
                PARTITIONS_PER_TOPIC, partitions - first
            )
            for first in range(0, partitions, PARTITIONS_PER_TOPIC)
        }
        self._partitions = partitions
        self._controller = 0
        self._times: ProcessorTimes

    def all(self) -> Iterator[Row]:
        """Start, create, lose two hosts, get them back."""
        for number in HOSTS:
            self._cluster.start_zookeeper(number)
        self._cluster.until_zookeeper_serves()
        with ProcessorTimes(self._processes) as self._times:
            count = len(self._homes)
            yield self._step(f"{count} brokers started, until all know each other", self._start)
            yield self._step(f"for comparison: {_IDLE_S:.0f} s without partitions", self._rest)
            yield self._step(f"{self._partitions} partitions created", self._create)
            yield from self._placement()
            yield self._step("for comparison: a record to each partition", self._write_to_all)
            self._settle()
            yield self._step(f"for comparison: {_IDLE_S:.0f} s without work", self._rest)
            lost = next(h for h in HOSTS if h != self._homes[self._controller])
            yield from self._lost_and_back(lost, "a host")
            yield from self._lost_and_back(
                self._homes[self._until_known()], "the controller's host"
            )

    # -- the steps -----------------------------------------------------------------------------

    def _start(self) -> None:
        for broker in self._homes:
            self._cluster.start_broker(broker, is_waited_for=False)
        self._controller = self._until_known()

    def _create(self) -> None:
        with Cluster(self._servers()) as client:
            for topic, count in self._topics.items():
                create_topic(client, topic, count, len(HOSTS))
        self._write_to_all()

    def _rest(self) -> None:
        time.sleep(_IDLE_S)

    def _settle(self) -> None:
        """Let the work that follows from earlier steps come to its end."""
        time.sleep(_SETTLED_S)

    def _placement(self) -> Iterator[Row]:
        rows = [row for topic in self._topics for row in self._rows(topic)]
        replicas = Counter(broker for row in rows for broker in row.replicas)
        leaders = Counter(row.replicas[0] for row in rows)
        for what, counts, total in (
            ("replicas", replicas, len(HOSTS) * self._partitions),
            ("preferred leaders", leaders, self._partitions),
        ):
            even = math.ceil(total / len(self._homes))
            most = max(counts.values())
            yield Row(
                what=f"most {what} of a broker; limit: the most even placement",
                amount=most,
                limit=even,
                unit=what,
                met=most <= max(even + 1, MOST_UNEVEN * even),
            )

    def _lost_and_back(self, host: int, name: str) -> Iterator[Row]:
        yield from self._lost(host, name)
        yield self._step(f"{name} back, until all know each other", lambda: self._return(host))
        yield self._step(f"{name} back, then until all are in sync", self._until_in_sync)
        yield self._step("then preferred leaders again", self._prefer)

    def _lost(self, host: int, name: str) -> Iterator[Row]:
        dead = frozenset(broker for broker, home in self._homes.items() if home == host)
        living = [broker for broker in self._homes if broker not in dead]
        with self._survivors(living) as survivors:
            read = {broker: len(self._cluster.log(broker)) for broker in living}
            off_s = time.time()
            self._cluster.power_off(host)
            found = self._until_noticed(read, dead)
            self._write_once(survivors)
            written_s = time.time()
            self._times.sample()
            self._settle()
            rest = self._step(f"{name} lost: {_IDLE_S:.0f} s without work", self._rest)
            again = self._step(
                f"{name} lost: a record to each partition", lambda: self._write_once(survivors)
            )
        what = f"{name} lost"
        state_changes = self._cluster.state_changes(self._controller)
        elected_s = last_election_s(state_changes, found.last_s)
        yield self._between(f"{what}, until the first broker is noticed", off_s, found.first_s)
        yield self._between(f"{what}, then until the last is", found.first_s, found.last_s)
        yield self._between(f"{what}, then until the last election", found.last_s, elected_s)
        yield self._between(
            f"{what}, from the last notice until all accept acks=all", found.last_s, written_s
        )
        yield rest
        yield again
        spent_s = self._times.between("brokers", found.first_s, written_s)
        idle_s = (rest.brokers_cpu_s or 0.0) * (written_s - found.first_s) / _IDLE_S
        for part, amount in (
            ("", spent_s),
            (", without what it takes without work", spent_s - idle_s),
            (", and without the records", spent_s - idle_s - (again.brokers_cpu_s or 0.0)),
        ):
            yield Row(
                what=f"{what}, from the first notice until all accept acks=all{part}",
                amount=rounded(amount),
                limit=MOST_CPU_S,
                unit="processor seconds of the brokers",
                met=amount <= MOST_CPU_S,
            )

    def _return(self, host: int) -> None:
        self._cluster.start_zookeeper(host)
        for broker, home in self._homes.items():
            if home == host:
                self._cluster.start_broker(broker, is_waited_for=False)
        self._until_known()

    def _prefer(self) -> None:
        with Cluster(self._servers()) as client:
            elect_leaders(client)
        self._until_as(lambda row: row.leader == row.replicas[0])

    # -- observations --------------------------------------------------------------------------

    def _until_noticed(self, read: Mapping[int, int], dead: frozenset[int]) -> Noticed:
        """`read`: living broker -> the length of its log when the host was lost."""
        deadline = Deadline.after(_READY_MS)
        while True:
            for broker, length in read.items():
                found = noticed(self._cluster.log(broker)[length:], dead)
                if found is not None:
                    self._controller = broker
                    return found
            deadline.check("the controller has noticed the loss of all brokers of a host")
            time.sleep(_POLL_S)

    def _until_known(self) -> int:
        """Wait until each broker's metadata has all of them, and return the controller."""
        deadline = Deadline.after(_READY_MS)
        controller = 0
        for broker in self._homes:
            while not (controller := self._known_to(broker)):
                if self._cluster.broker(broker).poll() is not None:
                    raise CommandError(
                        f"broker {broker} has ended: {self._cluster.log(broker)[-500:]}"
                    )
                deadline.check(f"broker {broker} knows all others")
                time.sleep(_POLL_S)
        self._controller = controller
        return controller

    def _known_to(self, broker: int) -> int:
        host, port = self._cluster.address(broker)
        try:
            with Cluster(
                f"{host}:{port}", bootstrap_timeout_ms=_PROBE_MS, deadline_ms=_PROBE_MS
            ) as client:
                found = client.metadata([])
        except HeadraceError:
            return 0
        controller = found.controller_id
        return int(controller or 0) if len(found.brokers) == len(self._homes) else 0

    def _until_in_sync(self) -> None:
        self._until_as(lambda row: len(row.isr) == len(HOSTS))

    def _until_as(self, as_wanted: Callable[[MetadataPartition], bool]) -> None:
        """Wait until the metadata of one broker have all partitions as wanted."""
        deadline = Deadline.after(_READY_MS)
        with self._survivors([next(iter(self._homes))]) as one:
            for topic, count in self._topics.items():
                one.until_led(topic, count, deadline, as_wanted)

    def _rows(self, topic: str) -> list[MetadataPartition]:
        found: list[MetadataPartition] = []

        def keep(row: MetadataPartition) -> bool:
            found.append(row)
            return True

        with self._survivors([next(iter(self._homes))]) as one:
            one.until_led(topic, self._topics[topic], Deadline.after(_READY_MS), keep)
        return found[-self._topics[topic] :]

    def _write_to_all(self) -> None:
        with self._survivors(self._homes) as everybody:
            self._write_once(everybody)

    def _write_once(self, survivors: Survivors) -> None:
        for topic in self._topics:
            survivors.write_to_all(topic, Deadline.after(_READY_MS))

    def _survivors(self, brokers: Collection[int]) -> Survivors:
        return Survivors([self._cluster.address(broker) for broker in brokers])

    def _servers(self) -> str:
        return self._cluster.bootstrap_servers

    # -- measuring -----------------------------------------------------------------------------

    def _step(self, what: str, work: Callable[[], None]) -> Row:
        began_s = time.time()
        self._times.sample()
        work()
        self._times.sample()
        return self._between(what, began_s, time.time())

    def _between(self, what: str, began_s: float, ended_s: float) -> Row:
        spent = {
            kind: rounded(self._times.between(kind, began_s, ended_s))
            for kind in ("brokers", str(self._controller), "zookeeper")
        }
        return Row(
            what=what,
            seconds=rounded(ended_s - began_s),
            brokers_cpu_s=spent["brokers"],
            controller_cpu_s=spent[str(self._controller)],
            zookeeper_cpu_s=spent["zookeeper"],
        )

    def _processes(self) -> dict[str, list[int]]:
        """Kind -> process ids; each broker is a kind of its own, too, by its number."""
        brokers = self._cluster.broker_pids()
        return {
            "brokers": list(brokers.values()),
            "zookeeper": self._cluster.zookeeper_pids(),
            **{str(broker): [pid] for broker, pid in brokers.items()},
        }
