"""The part of `headrace reassign` that moves replicas between the data folders of their brokers.

Rule: what a broker refuses is told before anything else of the plan begins. Source: KIP-113.
"""

from storage_engine.client.admin.log_dirs import alter_replica_log_dirs, describe_log_dirs
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.errors import CommandError
from storage_engine.tools.reassign_plan import Folders
from storage_engine.tools.reassign_states import DONE, FAILED, MOVING


def begin_folder_moves(cluster: Cluster, folders: Folders) -> None:
    """Begins to move the replicas, or has them created there when their brokers do not have them
    yet. Raises CommandError when one is refused."""
    refused = [
        f"{tp} to {folders[broker][tp]} on broker {broker}: {code.meaning}"
        for broker in sorted(folders)
        for tp, code in alter_replica_log_dirs(cluster, broker, folders[broker]).items()
        if code is not ErrorCode.REPLICA_NOT_AVAILABLE
    ]
    if refused:
        raise CommandError(f"some replicas can't be moved: {'; '.join(refused)}")


def folder_progress(cluster: Cluster, folders: Folders) -> dict[TopicPartition, tuple[str, str]]:
    """State and detail for each partition that a plan assigns to certain log directories."""
    states: dict[TopicPartition, tuple[str, str]] = {}
    for broker, wanted in sorted(folders.items()):
        found: dict[TopicPartition, tuple[str, str]] = {}
        for folder in describe_log_dirs(cluster, broker, wanted):
            for replica in folder.replicas:
                tp = replica.tp
                if folder.path == wanted[tp]:
                    lag = f"broker {broker} copies to {folder.path}, {replica.offset_lag} behind"
                    found[tp] = (MOVING, lag) if replica.is_future else (DONE, "")
                elif tp not in found and not replica.is_future:
                    found[tp] = FAILED, f"on broker {broker} it is in {folder.path}"
        for tp in wanted:
            state = found.get(tp, (FAILED, f"broker {broker} has no replica of it"))
            if states.get(tp, (DONE, ""))[0] == DONE:
                states[tp] = state
    return states
