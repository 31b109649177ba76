"""Which broker coordinates a group, or a transactional id. Its one rule: what is remembered is a
guess, which whoever is refused by that broker has to take back. Source: KIP-98."""

import importlib

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.registry import APIS, spec_for

_FIND_COORDINATOR = 10
_FIND_VERSION = 3
"""The newest for one name at a time."""

GROUP = 0
TRANSACTION = 1

MAX_REMEMBERED = 64
"""A process writes to few sinks at a time; batch writes have a new one each."""


def remembered_coordinator(
    cluster: Cluster, kind: int, key: str, what: str, deadline: Deadline
) -> int:
    """As `find_coordinator`, by an earlier answer to anybody who uses this `cluster`."""
    known = cluster.coordinators
    found = known.get((kind, key))
    if found is None:
        found = find_coordinator(cluster, kind, key, what, deadline)
        if len(known) >= MAX_REMEMBERED:
            known.pop(next(iter(known)))
        known[kind, key] = found
    return found


def forget_coordinator(cluster: Cluster, kind: int, key: str) -> None:
    """It did not answer, or coordinates that no more."""
    cluster.coordinators.pop((kind, key), None)


def find_coordinator(cluster: Cluster, kind: int, key: str, what: str, deadline: Deadline) -> int:
    """Its id, by the word of any broker. KafkaError, which names `what`, when there is none now."""
    # Imported now: most clients need none.
    module = importlib.import_module(
        f"storage_engine.protocol.apis.{APIS[_FIND_COORDINATOR].module}"
    )
    request = module.FindCoordinatorRequest(key=key, key_type=kind)
    spec = spec_for(_FIND_COORDINATOR)
    answer = cluster.ask_any(spec, request, deadline, version=_FIND_VERSION)
    code = ErrorCode.of(answer.error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(f"no coordinator for {what}: {answer.error_message or code.meaning}", code)
    return int(answer.node_id)
