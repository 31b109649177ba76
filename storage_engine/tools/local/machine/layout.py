"""Decides which brokers a machine has: their ids, ports, cores and disks. Without IO.

A broker uses one core, so there is one for each core. What was laid out once stays: more cores add
brokers, more disks add directories, and nothing is ever renumbered, moved or dropped.

- Ids count from the machine's first id on: the number at the end of its host's name, times 1,000,
  or what the caller gives.
- Ports count from the base port on.
- Cores are taken from the highest down, which leaves the lowest, where interrupts go, to the system
  and ZooKeeper.
- Disks are dealt out: a broker has its directory on one disk. A disk that dies or hangs then takes
  the brokers on it and no other; with a directory of each broker on each disk it would hold up all.
  A disk without a broker, since there are more disks than brokers or since it was added later, gets
  its share of the brokers that have the fewest.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local.cluster_file import BrokerEntry
from storage_engine.tools.local.cluster_plan import MAX_BROKERS, parse_zookeeper_hosts
from storage_engine.tools.local.free_ports import HIGHEST_PORT

IDS_OF_A_HOST = 1_000
DEFAULT_BASE_PORT = 9092
DEFAULT_MACHINES = 3
HIGHEST_ID = 2**31 - 1
MIN_MEMORY_MIB = 256
"""The least for a broker: an empty one takes some 60 MiB, and the cache of its files counts."""

_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9][A-Za-z0-9-]{0,62})*"
)
_NUMBER_AT_THE_END = re.compile(r"[0-9]+$")
_SIZE = re.compile(r"([1-9][0-9]{0,8})([mgtMGT])")
_MIB = {"m": 1, "g": 1 << 10, "t": 1 << 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineBroker:
    """A broker of the machine."""

    id: int
    port: int
    cpu: int
    """The only processor that it runs on."""
    log_dirs: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Relative to the machine's directory, as are the files in it."""
        return f"broker-{self.id}"

    @property
    def config(self) -> str:
        return f"{self.folder}/server.properties"

    def entry(self, host: str) -> BrokerEntry:
        """The broker as the processes of a local cluster have it."""
        return BrokerEntry.for_id(self.id, host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLayout:
    """The content of `machine.json`."""

    host: str
    rack: str | None
    zookeeper: str
    machines: int
    """The number in the cluster: topics have a replica on each of up to three."""
    first_id: int
    base_port: int
    disks: tuple[str, ...]
    memory_mib: int
    """The memory of all brokers together."""
    has_shared_disks: bool
    """For a try-out: directories that are on one disk."""
    has_shared_cores: bool
    """For a try-out: more brokers than processors."""
    run_as: str
    """The user of the brokers."""
    has_user_units: bool
    """Whether the units are for that user's own systemd, instead of the system's."""
    brokers: tuple[MachineBroker, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{self.host}:{broker.port}" for broker in self.brokers)

    @property
    def broker_memory_mib(self) -> int:
        return self.memory_mib // len(self.brokers)

    def broker(self, broker_id: int) -> MachineBroker:
        return next(broker for broker in self.brokers if broker.id == broker_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRequest:
    """The arguments of `machine init`. None: as the machine has it, or the default for a new
    one."""

    host: str | None = None
    cores: int | None = None
    disks: tuple[str, ...] | None = None
    zookeeper: str | None = None
    rack: str | None = None
    machines: int | None = None
    first_id: int | None = None
    base_port: int | None = None
    memory_mib: int | None = None
    has_shared_disks: bool = False
    has_shared_cores: bool = False
    run_as: str | None = None
    has_user_units: bool = False


def plan_layout(
    existing: MachineLayout | None,
    request: LayoutRequest,
    *,
    directory: str,
    cpus: Sequence[int],
    memory_mib: int,
    user: str,
) -> MachineLayout:
    """The layout of a machine with these processors, that memory for brokers and that user, unless
    the request has others. UsageError or CommandError for what can't be."""
    host = _host(existing, request, directory)
    shared_cores = request.has_shared_cores or (existing is not None and existing.has_shared_cores)
    cores = _cores(existing, request, directory, cpus, is_shared=shared_cores)
    base_port, first_id = _base_port(existing, request, cores), _first_id(existing, request, host)
    disks = _disks(existing, request, directory)
    present = existing.brokers if existing else ()
    new = [
        MachineBroker(id=first_id + i, port=base_port + i, cpu=cpu, log_dirs=())
        for i, cpu in enumerate(_cpus(present, cpus, cores), len(present))
    ]
    layout = MachineLayout(
        host=host,
        rack=request.rack or (existing.rack if existing else None),
        zookeeper=_zookeeper(existing, request),
        machines=_machines(existing, request),
        first_id=first_id,
        base_port=base_port,
        disks=disks,
        memory_mib=request.memory_mib or (existing.memory_mib if existing else memory_mib),
        has_shared_disks=request.has_shared_disks or bool(existing and existing.has_shared_disks),
        has_shared_cores=shared_cores,
        run_as=request.run_as or (existing.run_as if existing else user),
        has_user_units=request.has_user_units or bool(existing and existing.has_user_units),
        brokers=_with_disks((*present, *new), disks),
    )
    if layout.broker_memory_mib < MIN_MEMORY_MIB:
        raise CommandError(
            f"{layout.memory_mib} MiB for {cores} brokers are {layout.broker_memory_mib} MiB for "
            f"each; give --memory at least {cores * MIN_MEMORY_MIB}m, or fewer --cores"
        )
    return layout


def parse_size_mib(text: str) -> int:
    """`48g` or `512m`, in MiB; UsageError for anything else."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"--memory '{text}' is no size: give it as 48g or 512m")
    return int(found[1]) * _MIB[found[2].lower()]


def parse_disks(text: str) -> tuple[str, ...]:
    """The paths between the commas; UsageError for one that is given twice or not absolute."""
    given = [part.strip() for part in text.split(",")]
    disks = tuple(part if part == "/" else part.rstrip("/") for part in given)
    for disk in disks:
        if not disk.startswith("/") or any(each.isspace() or each in '%\\"' for each in disk):
            raise UsageError(
                f"--disks: '{disk}' is no path that can be used: give absolute ones, without "
                "blanks, as in /d1,/d2"
            )
        if disks.count(disk) > 1:
            raise UsageError(f"--disks has '{disk}' twice: give each disk once")
    return disks


def _host(existing: MachineLayout | None, request: LayoutRequest, directory: str) -> str:
    host = request.host
    if host is not None and not _HOST.fullmatch(host):
        raise UsageError(
            f"--host '{host}' is no name of a host: give the name or the IPv4 address by which "
            "clients and other machines reach this one"
        )
    if existing is None:
        if host is None:
            raise UsageError(
                "--host is missing: the name by which clients and other machines reach this one"
            )
        return host
    if host not in (None, existing.host):
        raise CommandError(
            f"'{directory}' is the layout of machine {existing.host}, not of {host}: give a "
            "directory on a disk of this machine alone"
        )
    return existing.host


def _cores(
    existing: MachineLayout | None,
    request: LayoutRequest,
    directory: str,
    cpus: Sequence[int],
    *,
    is_shared: bool,
) -> int:
    before = len(existing.brokers) if existing else 0
    cores = request.cores if request.cores is not None else before
    if not cores and request.cores is None:
        raise UsageError("--cores is missing: the number of brokers, each of which uses one core")
    if not 1 <= cores <= MAX_BROKERS:
        raise UsageError(f"--cores {cores} is impossible; give 1 to {MAX_BROKERS}")
    if cores < before:
        raise CommandError(
            f"'{directory}' has {before} brokers, --cores {cores} would leave the data of "
            f"{before - cores} out: leave the option out"
        )
    if cores > len(cpus) and not is_shared:
        raise CommandError(
            f"--cores {cores}: this machine has {len(cpus)}; leave one or two of them to the "
            "system and ZooKeeper, or give --shared-cores-ok for a try-out"
        )
    return cores


def _base_port(existing: MachineLayout | None, request: LayoutRequest, cores: int) -> int:
    before = existing.base_port if existing else None
    if request.base_port is not None and before not in (None, request.base_port):
        raise CommandError(
            f"the ports of this machine begin at {before}, and clients know them: leave "
            "--base-port out"
        )
    port = before or request.base_port or DEFAULT_BASE_PORT
    if port < 1 or port + cores - 1 > HIGHEST_PORT:
        raise UsageError(
            f"--base-port {port} is impossible for {cores} brokers; give 1 to "
            f"{HIGHEST_PORT - cores + 1}"
        )
    return port


def _first_id(existing: MachineLayout | None, request: LayoutRequest, host: str) -> int:
    before = existing.first_id if existing else None
    if request.first_id is not None and before not in (None, request.first_id):
        raise CommandError(
            f"the ids of this machine's brokers begin at {before}, and replicas are assigned to "
            "them: leave --first-id out"
        )
    if before is not None:
        return before
    first = request.first_id if request.first_id is not None else id_of_host(host)
    if first is None:
        raise UsageError(
            f"'{host}' ends in no number from which the ids of brokers could follow: give "
            f"--first-id, {IDS_OF_A_HOST} apart from every other machine's"
        )
    if not 0 <= first <= HIGHEST_ID - MAX_BROKERS:
        raise UsageError(f"--first-id {first} is impossible; give 0 to {HIGHEST_ID - MAX_BROKERS}")
    return first


def id_of_host(host: str) -> int | None:
    """The first id of a host with a number at the end of its name, without its domain: 3,000 for
    `h3.example.org`; None for others."""
    try:
        IPv4Address(host)
    except ValueError:
        found = _NUMBER_AT_THE_END.search(host.partition(".")[0])
        first = int(found[0]) * IDS_OF_A_HOST if found else HIGHEST_ID
        return first if first <= HIGHEST_ID - MAX_BROKERS else None
    return None


def _disks(
    existing: MachineLayout | None, request: LayoutRequest, directory: str
) -> tuple[str, ...]:
    before = existing.disks if existing else ()
    if request.disks is None:
        if not before:
            raise UsageError("--disks is missing: the mount points of the disks, as in /d1,/d2")
        return before
    missing = [disk for disk in before if disk not in request.disks]
    if missing:
        raise CommandError(
            f"'{directory}' has data on {', '.join(missing)}, which --disks leaves out: name all "
            "disks of before, too"
        )
    return (*before, *(disk for disk in request.disks if disk not in before))


def _zookeeper(existing: MachineLayout | None, request: LayoutRequest) -> str:
    if request.zookeeper is not None:
        parse_zookeeper_hosts(request.zookeeper)
        return request.zookeeper
    if existing is None:
        raise UsageError("--zookeeper is missing: its servers, as in h1:2181,h2:2181,h3:2181")
    return existing.zookeeper


def _machines(existing: MachineLayout | None, request: LayoutRequest) -> int:
    if request.machines is not None and request.machines < 1:
        raise UsageError(f"--machines {request.machines} is impossible; give 1 or more")
    return request.machines or (existing.machines if existing else DEFAULT_MACHINES)


def _cpus(present: Sequence[MachineBroker], cpus: Sequence[int], cores: int) -> list[int]:
    """The processors of the brokers that are new: those with the fewest brokers, highest first."""
    used = Counter(dict.fromkeys(cpus, 0))
    used.update(broker.cpu for broker in present if broker.cpu in used)
    chosen = []
    for _ in range(cores - len(present)):
        cpu = min(used, key=lambda each: (used[each], -each))
        used[cpu] += 1
        chosen.append(cpu)
    return chosen


def _with_disks(
    brokers: Sequence[MachineBroker], disks: Sequence[str]
) -> tuple[MachineBroker, ...]:
    """The brokers with their directories; those that they have stay first."""
    of_broker = {broker.id: list(broker.log_dirs) for broker in brokers}

    def has(disk: str, broker: MachineBroker) -> bool:
        return _log_dir(disk, broker.id) in of_broker[broker.id]

    def count(disk: str) -> int:
        return sum(has(disk, broker) for broker in brokers)

    for broker in brokers:
        if not of_broker[broker.id]:
            disk = min(disks, key=lambda each: (count(each), disks.index(each)))
            of_broker[broker.id].append(_log_dir(disk, broker.id))
    share = max(1, len(brokers) // len(disks))
    for disk in disks:
        if count(disk):
            continue
        # Of each of the other disks first one broker, then a second.
        crowd = sorted(brokers, key=lambda each: (len(of_broker[each.id]), each.id))
        for broker in crowd[:share]:
            of_broker[broker.id].append(_log_dir(disk, broker.id))
    return tuple(replace(broker, log_dirs=tuple(of_broker[broker.id])) for broker in brokers)


def _log_dir(disk: str, broker_id: int) -> str:
    return f"{disk.rstrip('/')}/headrace/broker-{broker_id}"
