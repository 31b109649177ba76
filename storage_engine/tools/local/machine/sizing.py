"""The size of a cluster for a load: brokers, cores, disks and memory, by measured figures.

The figures are of machines with two cores (docs/measurements.md), so that faster ones need less.
A broker uses one core. Bytes and GB are decimal.
"""

import math
from dataclasses import dataclass

from storage_engine.core.errors import ConfigError

GB = 10**9

READ_S = 0.48
"""Processor seconds a GB read. Source: docs/scale.md, Several brokers on a host: 8 brokers."""

WRITE_S, COPY_S = 0.91, 1.04
"""Processor seconds a GB written, of the leader and of each further replica, without what each
batch costs. Source: as READ_S, 1.38 s with one replica and 4.55 s with three, in batches of
128 KiB; the share of the batches follows from 15.9 s in batches of 16 KiB (docs/measurements.md,
Clients that we did not write: Java)."""

BATCH_S, BATCH_COPY_S = 62e-6, 71e-6
"""Processor seconds a batch, of the leader and of each further replica. Source: as WRITE_S."""

LONE_RECORD_S = 734e-6
"""Processor seconds of all three replicas for one record a request. Source: docs/measurements.md,
Clients that we did not write: 1,000 a second."""

TLS_WRITES, TLS_READS = 0.41, 0.29
"""The rate with TLS, of that without. Source: docs/measurements.md, What security costs."""

LOADED_BYTES = 280 * 10**6
"""Resident memory of a broker after load. Source: docs/measurements.md, The engine."""

EMPTY_BYTES = 57 << 20
PARTITION_BYTES, REPLICA_BYTES, CONTROLLED_BYTES = 440, 9_800, 1_800
"""Memory of a broker for each partition of the cluster, for each replica that it has, and of the
controller for each partition. Source: docs/scale.md, The model."""

CACHED_S = 60
"""Seconds of writes that consumers find in memory."""

FAILOVER_S, FAILOVER_A_BROKER_S = 62e-6, 16e-6
"""Processor seconds of the controller for each replica of a broker that died, and for each of these
and each broker. Source: docs/scale.md, The model."""

RESTART_S, RESTART_A_REPLICA_S = 0.5, 1.7e-3
"""From a SIGKILL until the broker serves again. Source: docs/scale.md, The model."""

MOST_REPLICAS = 10_000
"""Replicas of a broker, the most that was run. Source: docs/scale.md, Where it broke."""

MOST_PARTITIONS = 150_000
"""Half of those with which a new controller would lose its session. Source: docs/scale.md."""

SPARE_CORES = 2
"""Cores of each machine for the system and ZooKeeper. Source: docs/machines.md."""

INDEX_SHARE = 0.01
"""Indexes beside segments: 8 and 12 bytes for each 4 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLoad:
    """The work of clients, and how long it is to be kept."""

    records_per_s: float
    record_bytes: int
    """A record as it is stored, after compression."""
    partitions: int
    retention_s: float
    readers: float = 2.0
    """How often each record is read."""
    batch_bytes: int = 16_384
    """A producer's batch; the default is that of Kafka's client for Java."""
    replication_factor: int = 3
    machines: int = 3
    disk_bytes: int = 4 * 10**12
    segment_bytes: int = 1 << 30
    busy: float = 0.5
    """How busy brokers are to be at most: the rest is for bursts, and for the loss of a machine."""
    full: float = 0.75
    """How full disks are to be at most."""
    with_tls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSize:
    """Machines and brokers, and how busy they are."""

    written_bytes_per_s: float
    read_bytes_per_s: float
    busy_cores: float
    """All brokers together."""
    brokers: int
    machines: int
    cores_of_machine: int
    memory_of_machine: int
    disks_of_machine: int
    stored_bytes: int
    """By all brokers together."""
    machine_in_bytes_per_s: float
    """Network: from producers and leaders."""
    machine_out_bytes_per_s: float
    """To followers and readers."""
    replicas_of_broker: int
    failover_s: float
    """The processor time of the controller after the loss of a broker."""
    restart_s: float
    """From the kill of a broker until it serves again."""
    warnings: tuple[str, ...]


def size_of(load: ClusterLoad) -> ClusterSize:
    """ConfigError for a load that can't be met as it was given."""
    _check(load)
    written = load.records_per_s * load.record_bytes
    cores = _busy_cores(load, written)
    brokers_each = math.ceil(max(cores / load.busy, load.machines) / load.machines)
    brokers = brokers_each * load.machines
    replicas = math.ceil(load.partitions * load.replication_factor / brokers)
    stored = _stored_bytes(load, written)
    copied = written * load.replication_factor
    read = written * load.readers
    kept = EMPTY_BYTES + PARTITION_BYTES * load.partitions + REPLICA_BYTES * replicas
    memory = max(LOADED_BYTES, kept + CONTROLLED_BYTES * load.partitions)
    return ClusterSize(
        written_bytes_per_s=written,
        read_bytes_per_s=read,
        busy_cores=cores,
        brokers=brokers,
        machines=load.machines,
        cores_of_machine=brokers_each + SPARE_CORES,
        memory_of_machine=round(brokers_each * memory + CACHED_S * copied / load.machines),
        disks_of_machine=math.ceil(stored / load.machines / (load.disk_bytes * load.full)),
        stored_bytes=stored,
        machine_in_bytes_per_s=copied / load.machines,
        machine_out_bytes_per_s=(copied - written + read) / load.machines,
        replicas_of_broker=replicas,
        failover_s=(FAILOVER_S + FAILOVER_A_BROKER_S * brokers) * replicas,
        restart_s=RESTART_S + RESTART_A_REPLICA_S * replicas,
        warnings=tuple(_warnings(load, brokers, replicas)),
    )


def _check(load: ClusterLoad) -> None:
    if load.replication_factor > load.machines:
        raise ConfigError(
            f"{load.replication_factor} replicas need as many machines, and there are "
            f"{load.machines}: no two of them share one"
        )
    for share in (load.busy, load.full):
        if not 0 < share <= 1:
            raise ConfigError(f"a share of {share:g} can't be used: give more than 0, at most 1")


def _busy_cores(load: ClusterLoad, written: float) -> float:
    """Processor seconds a second."""
    copies = load.replication_factor - 1
    if load.batch_bytes > load.record_bytes:
        a_batch = BATCH_S + BATCH_COPY_S * copies
        batches = written / load.batch_bytes * a_batch
    else:
        batches = load.records_per_s * LONE_RECORD_S * (1 + copies) / 3
    writes = written / GB * (WRITE_S + COPY_S * copies)
    reads = written / GB * READ_S * load.readers
    if load.with_tls:
        return (batches + writes) / TLS_WRITES + reads / TLS_READS
    return batches + writes + reads


def _stored_bytes(load: ClusterLoad, written: float) -> int:
    """Retention deletes whole segments: up to one more is kept of each replica."""
    kept = written * load.retention_s * (1 + INDEX_SHARE)
    more = min(load.segment_bytes * load.partitions, kept)
    return round((kept + more) * load.replication_factor)


def _warnings(load: ClusterLoad, brokers: int, replicas: int) -> list[str]:
    found = []
    if load.partitions < brokers:
        found.append(
            f"{load.partitions} partitions are fewer than {brokers} brokers: some lead nothing"
        )
    if replicas > MOST_REPLICAS:
        found.append(
            f"{replicas} replicas on a broker are more than were ever run ({MOST_REPLICAS}): take "
            "fewer partitions or more brokers"
        )
    if load.partitions > MOST_PARTITIONS:
        found.append(
            f"{load.partitions} partitions keep a new controller busy for a large part of its "
            "session: raise zookeeper.session.timeout.ms, or take several clusters"
        )
    return found
