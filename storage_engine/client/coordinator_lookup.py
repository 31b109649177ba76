"""Which broker coordinates a group, or a transactional id. Source: KIP-98."""

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
