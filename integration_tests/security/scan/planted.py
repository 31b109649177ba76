"""What the requests of the scan are about: things that can be read, changed and destroyed.

Whatever nobody may see who has no right to it has MARKER somewhere, and no request has.
"""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kazoo.client import KazooClient

from integration_tests.security.scan.probe import Answer, Probe
from integration_tests.support.cluster_support import wait_until
from simulation.world.requests import make_batch, produce_request
from storage_engine.protocol.apis.join_batch import JoinBatchRequest
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.apis.registry import name_of
from storage_engine.protocol.messages.init_producer_id import InitProducerIdRequest
from storage_engine.tests.broker.guards.guarded_cluster import codes_in
from storage_engine.tests.protocol.apis.struct_classes import api_of, struct_of

MARKER = "s3cret"
LONG_MS = 900_000
"""Longer than the scan takes: no member and no transaction ends by itself."""

_TRANSACTIONS = ("commits", "enlists", "adds", f"{MARKER}-transaction")
_SINKS = ("s", f"{MARKER}-sink")
_GROUPS = ("g", "gone", "live", "offsets", f"{MARKER}-group")
_GROUP_KEYS, _TRANSACTION_KEYS = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What requests have to name rightly to have an effect."""

    topic_id: UUID
    member_id: str
    """Of the group `live`."""
    producer_ids: dict[str, int]
    """By transactional id; their epochs are 0."""
    controller_epoch: int
    broker_epoch: int


def built(key: int, /, **fields: Any) -> Any:
    """A request, made of dictionaries and lists."""
    return _filled(api_of(key)[1], fields)


def _filled(message_class: Any, fields: dict[str, Any]) -> Any:
    given = {}
    for name, value in fields.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            row_class = struct_of(message_class, name)
            given[name] = [_filled(row_class, row) for row in value]
        else:
            given[name] = value
    return message_class(**given)


def offsets(metadata: str = "") -> list[dict[str, Any]]:
    """Partition 0 of the topic `t`, with an offset to commit."""
    row = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }
    return [{"name": "t", "partitions": [row]}]


def one_partition(**row: Any) -> list[dict[str, Any]]:
    """Partition 0 of the topic `t`."""
    return [{"name": "t", "partitions": [row or 0]}]


def rule(principal: str, resource: str) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": resource,
        "resource_pattern_type": 3,
        "principal": principal,
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }


def plant(admin: Probe, zookeeper: KazooClient) -> Planted:
    """Makes all that, as a super user."""
    topics = ("t", "gone", "gone-by-id", "stopped", f"{MARKER}-topic")
    new = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": []}
        for name in topics
    ]
    everything = MetadataRequest(topics=None)
    wait_until(lambda: bool(_ask(admin, 3, 9, everything).brokers), "the broker knows itself")
    _ask(admin, 19, 5, built(19, topics=new, timeout_ms=30_000))
    for name in ("t", "stopped"):
        batch = make_batch(payload=f"{MARKER}-payload".encode())
        _ask(admin, 0, 8, produce_request(name, 0, batch, acks=1))
    for kind, names in ((_GROUP_KEYS, _GROUPS), (_TRANSACTION_KEYS, (*_TRANSACTIONS, *_SINKS))):
        for name in names:
            _wait_for_coordinator(admin, kind, name)
    for name in ("g", "gone", "offsets", f"{MARKER}-group"):
        commit = {"group_id": name, "generation_id_or_member_epoch": -1, "member_id": ""}
        _ask(admin, 8, 5, built(8, **commit, topics=offsets(f"{MARKER}-metadata")))
    producer_ids = {name: _producer_id(admin, name) for name in _TRANSACTIONS}
    for name in ("commits", f"{MARKER}-transaction"):
        producer = {"transactional_id": name, "producer_id": producer_ids[name]}
        _ask(admin, 25, 3, built(25, **producer, producer_epoch=0, group_id="g"))
    _plant_cluster_settings(admin)
    sink = {"query": "q", "batch": 0, "timeout_ms": LONG_MS, "nonce": UUID(int=1)}
    for name in _SINKS:
        _ask(admin, 20_000, 0, JoinBatchRequest(sink=name, **sink))
    (described,) = _ask(admin, 3, 12, MetadataRequest(topics=["gone-by-id"])).topics
    epoch, _ = zookeeper.get("/controller_epoch")
    broker = zookeeper.exists("/brokers/ids/1")
    assert broker is not None
    return Planted(
        topic_id=described.topic_id,
        member_id=_join(admin, "live"),
        producer_ids=producer_ids,
        controller_epoch=int(json.loads(epoch)),
        broker_epoch=broker.czxid,
    )


def _plant_cluster_settings(admin: Probe) -> None:
    rules = [rule(f"User:{MARKER}-principal", "ruled"), rule("User:somebody", "unruled")]
    _ask(admin, 30, 2, built(30, creations=rules))
    entity = [{"entity_type": "user", "entity_name": f"{MARKER}-user"}]
    quota = {"entity": entity, "ops": [{"key": "producer_byte_rate", "value": 1e9}]}
    _ask(admin, 49, 1, built(49, entries=[quota], validate_only=False))
    _ask(admin, 51, 0, built(51, deletions=[], upsertions=[credential(f"{MARKER}-user")]))


def credential(user: str) -> dict[str, Any]:
    return {
        "name": user,
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt-of-the-user",
        "salted_password": b"p" * 32,
    }


def _ask(admin: Probe, key: int, version: int, request: Any) -> Any:
    """Of a broker that has just become the controller, or a leader."""
    answers: list[Answer] = []

    def is_final() -> bool:
        answer = admin.ask(key, version, request)
        assert answer is not None
        answers.append(answer)
        return not any(code.retriable for code in codes_in(answer.message))

    wait_until(is_final, f"an answer to {name_of(key)}")
    message = answers[-1].message
    assert not codes_in(message), message
    return message


def _wait_for_coordinator(admin: Probe, kind: int, name: str) -> None:
    def is_there() -> bool:
        answer = admin.ask(10, 3, built(10, key=name, key_type=kind))
        assert answer is not None
        if codes_in(answer.message):
            return False
        if kind == _GROUP_KEYS:
            answer = admin.ask(15, 5, built(15, groups=[name]))
        else:
            answer = admin.ask(65, 0, built(65, transactional_ids=[name]))
        assert answer is not None
        return not any(code.retriable for code in codes_in(answer.message))

    wait_until(is_there, f"{name} has a coordinator")


def _producer_id(admin: Probe, name: str) -> int:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=LONG_MS)
    return int(_ask(admin, 22, 4, request).producer_id)


def _join(admin: Probe, group: str) -> str:
    """Of a member that is there while the scan runs."""
    joined = _ask(admin, 11, 2, join_request(group, metadata=f"{MARKER}-member".encode()))
    row = {"member_id": joined.member_id, "assignment": f"{MARKER}-assignment".encode()}
    known = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    _ask(admin, 14, 2, built(14, group_id=group, **known, assignments=[row]))
    return str(joined.member_id)


def join_request(group: str, *, metadata: bytes = b"") -> Any:
    return built(
        11,
        group_id=group,
        session_timeout_ms=LONG_MS,
        rebalance_timeout_ms=LONG_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": metadata}],
    )
