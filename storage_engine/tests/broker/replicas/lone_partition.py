"""A partition of a broker that has nothing else, for tests of one of its parts."""

from collections.abc import Callable

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.lease import LeaderLease
from storage_engine.broker.replicas.partition_ports import PartitionPorts
from storage_engine.broker.replicas.purgatory import EndOfTurn
from storage_engine.core.replication.partition import LagLimits


def partition_ports(
    loop: SimulatedLoop,
    *,
    flush: Callable[[HostedPartition, Callable[[], None] | None, int], None] = lambda *_: None,
    on_failure: Callable[[HostedPartition, Exception], None] = lambda *_: None,
) -> PartitionPorts:
    return PartitionPorts(
        broker_id=2,
        lag=LagLimits(lag_max_ms=10_000),
        clock=loop,
        lease=LeaderLease(lambda: True),
        end_of_turn=EndOfTurn(loop),
        propose_isr=lambda *_: None,
        read_isr=lambda *_: None,
        flush=flush,
        on_failure=on_failure,
    )
