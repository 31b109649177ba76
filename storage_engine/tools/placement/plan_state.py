"""The file by which a command that moves replicas goes on where it was killed, or takes back what
it did.

It is a plan as `headrace reassign` reads it, with the replicas before beside it. It is written
before the first change, and replaced in one step.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.secret_files import write_whole
from storage_engine.tools.placement.reassign_plan import plan_document, read_assignments
from storage_engine.zookeeper.session_credentials import for_owner

_READABLE_BY_ALL = 0o644


class Phase(StrEnum):
    UNDER_WAY = "under way"
    COMPLETED = "completed"
    UNDOING = "undoing"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    action: str
    """The command, `drain` or `rebalance`."""
    cluster_id: str
    phase: Phase
    plan: Mapping[TopicPartition, tuple[int, ...]]
    """The replicas at the end."""
    before: Mapping[TopicPartition, tuple[int, ...]]
    """The replicas of the same partitions before the first change."""
    brokers: tuple[int, ...] = ()
    """The brokers that are drained."""
    cordons: Mapping[int, str | None]
    """Their `cordoned.log.dirs` before the first change."""
    is_throttled: bool = False
    """Whether replication may be throttled because of it."""


def write_state(path: Path, state: PlanState) -> None:
    document: Document = {
        **plan_document(state.plan),
        "before": plan_document(state.before)["partitions"],
        "action": state.action,
        "phase": state.phase.value,
        "cluster": state.cluster_id,
        "brokers": list(state.brokers),
        "cordons": {str(broker): value for broker, value in sorted(state.cordons.items())},
        "throttled": state.is_throttled,
    }
    write_whole(path, f"{json.dumps(document)}\n".encode(), mode=_READABLE_BY_ALL)


def read_state(path: Path, cluster_id: str | None, action: str) -> PlanState | None:
    """Return what the file holds; None where there is none. CommandError for a file of another
    cluster or command, or of another form."""
    if not path.exists():
        return None
    plan = read_assignments(path, "partitions")
    before = read_assignments(path, "before")
    document = json.loads(path.read_text(encoding="utf-8"))
    try:
        state = PlanState(
            action=str(document["action"]),
            cluster_id=str(document["cluster"]),
            phase=Phase(document["phase"]),
            plan=plan,
            before=before,
            brokers=tuple(int(broker) for broker in document["brokers"]),
            cordons={
                int(broker): None if value is None else str(value)
                for broker, value in document["cordons"].items()
            },
            is_throttled=bool(document["throttled"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(
            f"{path} is no state file of 'headrace {action}' ({type(error).__name__}: {error}); "
            "name another with --state"
        ) from None
    if state.action != action:
        raise CommandError(
            f"{path} is the state of 'headrace {state.action}'; name another file with --state"
        )
    if state.cluster_id != str(cluster_id):
        raise CommandError(
            f"{path} is the state of another cluster, {state.cluster_id}; name another file with "
            "--state"
        )
    return state


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Holds the lock of a state file. CommandError while another command of this machine has it."""
    with open(path.with_name(f".{path.name}.lock"), "a", opener=for_owner) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"another command is at work with {path}: end it first (Ctrl-C)"
            ) from None
        yield
