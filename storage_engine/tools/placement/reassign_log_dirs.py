"""The part of `headrace reassign` that moves replicas between the log dirs of their brokers.

A move that a broker refuses is reported before anything else of the plan begins. Source: KIP-113.
"""

from storage_engine.client.admin.log_dirs import alter_replica_log_dirs, describe_log_dirs
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.reassign_plan import PlannedLogDirs
from storage_engine.tools.placement.reassign_progress import DONE, FAILED, MOVING


def begin_log_dir_moves(cluster: Cluster, log_dirs: PlannedLogDirs) -> None:
    """Begins to move the replicas, or has them created there when their brokers do not have them
    yet. Raises CommandError when one is refused."""
    refused = [
        f"{tp} to {log_dirs[broker][tp]} on broker {broker}: {code.meaning}"
        for broker in sorted(log_dirs)
        for tp, code in alter_replica_log_dirs(cluster, broker, log_dirs[broker]).items()
        if code is not ErrorCode.REPLICA_NOT_AVAILABLE
    ]
    if refused:
        raise CommandError(f"some replicas can't be moved: {'; '.join(refused)}")


def log_dir_progress(
    cluster: Cluster, log_dirs: PlannedLogDirs
) -> dict[TopicPartition, tuple[str, str]]:
    """State and detail for each partition that a plan assigns to certain log dirs."""
    states: dict[TopicPartition, tuple[str, str]] = {}
    for broker, wanted in sorted(log_dirs.items()):
        found: dict[TopicPartition, tuple[str, str]] = {}
        for log_dir in describe_log_dirs(cluster, broker, wanted):
            for replica in log_dir.replicas:
                tp = replica.tp
                if log_dir.path == wanted.get(tp):
                    lag = f"broker {broker} copies to {log_dir.path}, {replica.offset_lag} behind"
                    found[tp] = (MOVING, lag) if replica.is_future else (DONE, "")
                elif tp not in found and not replica.is_future:
                    found[tp] = FAILED, f"on broker {broker} it is in {log_dir.path}"
        for tp in wanted:
            state = found.get(tp, (FAILED, f"broker {broker} has no replica of it"))
            if states.get(tp, (DONE, ""))[0] == DONE:
                states[tp] = state
    return states
