"""What tests of simulated brokers ask them for."""

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import ErrorCode


def code_of(answer) -> ErrorCode:
    """The code of the first partition."""
    return ErrorCode.of(answer.partitions[0].error_code)


def disk_of(cluster: SimulatedCluster, broker: int = 1) -> SimulatedDisk:
    disk = cluster[broker].disk
    assert isinstance(disk, SimulatedDisk)
    return disk
