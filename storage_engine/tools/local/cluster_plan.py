"""Decides what `headrace up` runs: how many brokers, on which ports, with which ZooKeeper.

The decision is made before anything starts.

Whatever the caller did not give stays as it is on disk; an impossible request is refused before
anything changes.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local.cluster_file import SECURITY, BrokerEntry, ClusterFile
from storage_engine.tools.local.free_ports import HIGHEST_PORT, find_free_port, is_port_free

HOST = "127.0.0.1"
DEFAULT_BROKERS = 3
DEFAULT_PORT = 9092
DEFAULT_ZOOKEEPER_PORT = 2181
MAX_BROKERS = 100
"""More processes than that on one machine is a slip of the finger."""

ZOOKEEPER_DIR = "zookeeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpRequest:
    """The arguments of `up`. None means "as the cluster has it", or the default for a new
    cluster."""

    brokers: int | None = None
    port: int | None = None
    """Port of the first broker; the others follow. 0: any free ports."""
    zookeeper: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    is_secure: bool = False
    """TLS, log-ins and access rules, for a new cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The host's ports, so that a test can stand in for them."""

    is_free: Callable[[str, int], bool] = is_port_free
    find: Callable[[str, Collection[int]], int] = lambda host, avoid: find_free_port(
        host, avoid=avoid
    )


def plan_cluster(
    existing: ClusterFile | None,
    request: UpRequest,
    *,
    directory: Path,
    running: Collection[int],
    zookeeper_runs: bool,
    ports: Ports | None = None,
) -> ClusterFile:
    """The cluster to run. `running` are the ids of brokers that are up and stay untouched."""
    ports = ports or Ports()
    _check(request)
    brokers = _brokers(existing, request, directory)
    brokers = _with_ports(brokers, existing, request, frozenset(running), ports)
    taken = {entry.port for entry in brokers}
    if existing is None:
        new = _with_new_zookeeper(brokers, request, taken, ports)
        return replace(new, security=SECURITY) if request.is_secure else new
    if request.is_secure and existing.security is None:
        raise CommandError(
            f"the cluster in '{directory}' is not secured, and --secure makes new ones only: take"
            " another folder, or secure this one step by step (docs/security.md)"
        )
    zookeeper = _continued_zookeeper(existing, request, directory)
    if existing.zookeeper_dir is not None and not zookeeper_runs:
        zookeeper = _free_zookeeper_address(zookeeper, running, taken, ports)
    return replace(existing, brokers=brokers, zookeeper=zookeeper)


def _check(request: UpRequest) -> None:
    if request.brokers is not None and not 1 <= request.brokers <= MAX_BROKERS:
        raise UsageError(f"--brokers {request.brokers} is impossible; give 1 to {MAX_BROKERS}")
    if request.port is not None and not 0 <= request.port <= HIGHEST_PORT:
        raise UsageError(f"--port {request.port} is impossible; give 0 to {HIGHEST_PORT}")
    if request.zookeeper is not None:
        parse_zookeeper_hosts(request.zookeeper)


def parse_zookeeper_hosts(hosts: str) -> list[tuple[str, int]]:
    """`host:port[,host:port…][/path]`, port 2181 when left out; UsageError for anything else."""
    servers, slash, path = hosts.partition("/")
    result = []
    for server in servers.split(","):
        host, _, port = server.strip().partition(":")
        if not host or not (port or str(DEFAULT_ZOOKEEPER_PORT)).isdigit() or (slash and not path):
            raise UsageError(
                f"--zookeeper '{hosts}' is not of the form HOST:PORT[,HOST:PORT…][/PATH]"
            )
        result.append((host, int(port or DEFAULT_ZOOKEEPER_PORT)))
    return result


def _brokers(
    existing: ClusterFile | None, request: UpRequest, directory: Path
) -> tuple[BrokerEntry, ...]:
    """The brokers there are and those to add, which have port 0 for now."""
    present = existing.brokers if existing is not None else ()
    wanted = request.brokers or len(present) or DEFAULT_BROKERS
    if wanted < len(present):
        raise CommandError(
            f"'{directory}' has {len(present)} brokers, --brokers {wanted} would leave data out; "
            "leave the option out, or take another folder"
        )
    first_new_id = max((entry.id for entry in present), default=0) + 1
    new_ids = range(first_new_id, first_new_id + wanted - len(present))
    return present + tuple(BrokerEntry.for_id(i, HOST, 0) for i in new_ids)


def _with_ports(
    brokers: tuple[BrokerEntry, ...],
    existing: ClusterFile | None,
    request: UpRequest,
    running: frozenset[int],
    ports: Ports,
) -> tuple[BrokerEntry, ...]:
    if request.port == 0:
        return _with_any_ports(brokers, running, ports)
    first_port = request.port or (existing.brokers[0].port if existing else DEFAULT_PORT)
    known = 0 if existing is None or request.port else len(existing.brokers)
    result = list(brokers[:known])
    next_port = max((entry.port for entry in result), default=first_port - 1) + 1
    for port, entry in enumerate(brokers[known:], next_port):
        if port > HIGHEST_PORT:
            raise UsageError(
                f"{len(brokers)} brokers from port {first_port} on would need ports above "
                f"{HIGHEST_PORT}; give a lower --port"
            )
        result.append(replace(entry, port=port))
    for before, entry in zip(brokers, result, strict=True):
        if entry.id in running and entry.port != before.port:
            raise CommandError(
                f"broker {entry.id} runs on port {before.port} and can't move to {entry.port}; "
                "stop it first with 'headrace down'"
            )
        if entry.id not in running and not ports.is_free(entry.host, entry.port):
            raise port_in_use(entry)
    return tuple(result)


def _with_any_ports(
    brokers: tuple[BrokerEntry, ...], running: frozenset[int], ports: Ports
) -> tuple[BrokerEntry, ...]:
    """Ports of before where they are free, else any: clients that know the old ones find the
    cluster again.
    """
    result: list[BrokerEntry] = []
    avoid = {entry.port for entry in brokers}
    for entry in brokers:
        keep = entry.id in running or (entry.port > 0 and ports.is_free(entry.host, entry.port))
        port = entry.port if keep else ports.find(entry.host, avoid)
        avoid.add(port)
        result.append(replace(entry, port=port))
    return tuple(result)


def port_in_use(entry: BrokerEntry) -> CommandError:
    """The error for a broker's port that somebody else holds."""
    return CommandError(
        f"port {entry.port} of {entry.host}, for broker {entry.id}, is in use: stop the program "
        "that holds it, or choose other ports with 'headrace up --port' (0 chooses free ports)"
    )


def _with_new_zookeeper(
    brokers: tuple[BrokerEntry, ...], request: UpRequest, taken: set[int], ports: Ports
) -> ClusterFile:
    if request.zookeeper is not None:
        return ClusterFile(
            zookeeper=request.zookeeper, zookeeper_pid=None, zookeeper_dir=None, brokers=brokers
        )
    port = DEFAULT_ZOOKEEPER_PORT
    if request.port == 0 or port in taken or not ports.is_free(HOST, port):
        port = ports.find(HOST, taken)
    return ClusterFile(
        zookeeper=f"{HOST}:{port}",
        zookeeper_pid=None,
        zookeeper_dir=ZOOKEEPER_DIR,
        brokers=brokers,
    )


def _continued_zookeeper(existing: ClusterFile, request: UpRequest, directory: Path) -> str:
    if request.zookeeper is None or request.zookeeper == existing.zookeeper:
        return existing.zookeeper
    if existing.zookeeper_dir is not None:
        raise CommandError(
            f"'{directory}' has a ZooKeeper of its own, which knows its topics; --zookeeper can't "
            "replace it: leave the option out, or take another folder"
        )
    return request.zookeeper


def _free_zookeeper_address(
    address: str, running: Collection[int], taken: set[int], ports: Ports
) -> str:
    """The address of before, or another when it has been taken since; brokers that run know only
    the old one.
    """
    host, port = parse_zookeeper_hosts(address)[0]
    if port not in taken and ports.is_free(host, port):
        return address
    if running:
        raise CommandError(
            f"port {port} of {host}, for ZooKeeper, is in use, and brokers that run expect it "
            "there: stop the program that holds it, or stop the brokers with 'headrace down'"
        )
    return f"{HOST}:{ports.find(HOST, taken)}"
