"""A request for each API of those who write, read, are members of groups and end transactions, in
each version.

A request that changes something does so for the first who may; that is when it is seen that it
would have had an effect for those before who may not.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from integration_tests.security.scan.planted import (
    Planted,
    built,
    join_request,
    offsets,
    one_partition,
)
from integration_tests.security.scan.scanned_request import WAIT_MS, same, scanned
from simulation.world.requests import make_batch, produce_request
from storage_engine.core.ids import topic_id_to_text
from storage_engine.protocol.apis.abort_members import AbortMembersRequest
from storage_engine.protocol.apis.batch_heartbeat import BatchHeartbeatRequest
from storage_engine.protocol.apis.commit_batch import CommitBatchRequest
from storage_engine.protocol.apis.describe_schemas import DescribeSchemasRequest
from storage_engine.protocol.apis.describe_sinks import DescribeSinksRequest
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest
from storage_engine.protocol.apis.join_batch import JoinBatchRequest
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.protocol.messages.init_producer_id import InitProducerIdRequest
from storage_engine.tests.broker.guards.api_cases import (
    CLUSTER_ERROR,
    TOPIC_ERROR,
    O,
    group,
    to_cluster,
    topic,
    transaction,
)


def _produce(acks: int = 1, name: str | None = None) -> Callable[[Planted], Any]:
    return lambda _: produce_request("t", 0, make_batch(), acks=acks, transactional_id=name)


def _fetch(replica_id: int = -1, *, by_id: bool = False) -> Callable[[Planted], Any]:
    def request(planted: Planted) -> Any:
        name = topic_id_to_text(planted.topic_id) if by_id else "t"
        return FetchRequest(0, 1, 1 << 20, [FetchPartition(name, 0, 0, 1 << 20)], replica_id)

    return request


def _producer(key: int, name: str, **fields: Any) -> Callable[[Planted], Any]:
    def request(planted: Planted) -> Any:
        producer = {"transactional_id": name, "producer_id": planted.producer_ids[name]}
        return built(key, **producer, producer_epoch=0, **fields)

    return request


def _enlists(planted: Planted) -> Any:
    return built(
        24,
        v3_and_below_transactional_id="enlists",
        v3_and_below_producer_id=planted.producer_ids["enlists"],
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=one_partition(),
    )


def _epochs(replica_id: int) -> Callable[[Planted], Any]:
    row = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return same(23, replica_id=replica_id, topics=[{"topic": "t", "partitions": [row]}])


_WRITE_T, _READ_T, _DESCRIBE_T = topic(O.WRITE), topic(O.READ), topic(O.DESCRIBE)
_READ_G, _DESCRIBE_G = group(O.READ), group(O.DESCRIBE)
_ACTION = to_cluster(O.CLUSTER_ACTION)
_COMMIT = {"generation_id_or_member_epoch": -1, "member_id": ""}
_JOINS = {
    "rebalance_timeout_ms": WAIT_MS,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}
_WITH_T = [{"name": "t", "partition_indexes": [0]}]

_RECORDS = [
    scanned(0, _produce(), _WRITE_T, changes=True),
    scanned(0, _produce(acks=0), _WRITE_T, note="unanswered", is_answered=False, first=3),
    scanned(0, _produce(name="x"), _WRITE_T, transaction(O.WRITE), first=3, note="transaction"),
    scanned(
        0,
        _produce(name="__headrace_sink/s"),
        _WRITE_T,
        transaction(O.WRITE, "s"),
        first=3,
        note="sink",
    ),
    scanned(1, _fetch(), _READ_T, last=12, shows=True),
    scanned(1, _fetch(by_id=True), topic(O.READ, "gone-by-id"), first=13, note="by-id"),
    scanned(1, _fetch(2), _ACTION, last=12, note="replica", refusals={_ACTION: TOPIC_ERROR}),
    scanned(2, lambda _: ListOffsetsRequest([ListOffsetsPartition("t", 0, -1)]), _DESCRIBE_T),
    scanned(
        2,
        lambda _: ListOffsetsRequest([ListOffsetsPartition("t", 0, -1)], 2),
        _ACTION,
        note="replica",
    ),
    scanned(23, _epochs(-1), _DESCRIBE_T),
    scanned(23, _epochs(2), _ACTION, first=3, note="replica"),
]

_GROUPS = [
    scanned(
        8,
        same(8, group_id="offsets", **_COMMIT, topics=offsets("new")),
        group(O.READ, "offsets"),
        _READ_T,
        changes=True,
    ),
    scanned(
        9,
        same(9, group_id="g", topics=_WITH_T),
        _DESCRIBE_G,
        _DESCRIBE_T,
        last=7,
        shows=True,
    ),
    scanned(
        9,
        same(9, group_id="g", topics=None),
        _DESCRIBE_G,
        first=2,
        last=7,
        note="all",
    ),
    scanned(
        9,
        same(9, groups=[{"group_id": "g", "topics": _WITH_T}]),
        _DESCRIBE_G,
        _DESCRIBE_T,
        first=8,
        note="many",
        shows=True,
    ),
    scanned(10, same(10, key="g", key_type=0), _DESCRIBE_G, last=3),
    scanned(10, same(10, coordinator_keys=["g"], key_type=0), _DESCRIBE_G, first=4, note="many"),
    scanned(
        10,
        same(10, key="x", key_type=1),
        transaction(O.DESCRIBE),
        first=1,
        last=3,
        note="transaction",
    ),
    scanned(
        10,
        same(10, coordinator_keys=["x"], key_type=1),
        transaction(O.DESCRIBE),
        first=4,
        note="transactions",
    ),
    scanned(
        11,
        lambda _: join_request("joined"),
        group(O.READ, "joined"),
        last=0,
        note="first",
        changes=True,
    ),
    scanned(
        11,
        same(
            11,
            group_id="g",
            session_timeout_ms=WAIT_MS,
            rebalance_timeout_ms=WAIT_MS,
            member_id="",
            protocol_type="consumer",
            protocols=[],
        ),
        _READ_G,
    ),
    scanned(12, same(12, group_id="g", generation_id=1, member_id="m"), _READ_G),
    scanned(14, same(14, group_id="g", generation_id=1, member_id="m", assignments=[]), _READ_G),
    scanned(
        68,
        same(68, group_id="consumers-0", member_id="", **_JOINS),
        group(O.READ, "consumers-0"),
        _DESCRIBE_T,
        last=0,
        note="first",
        changes=True,
    ),
    scanned(
        68,
        same(68, group_id="consumers", member_id="m", **_JOINS),
        group(O.READ, "consumers"),
        _DESCRIBE_T,
        first=1,
        changes=True,
    ),
    scanned(69, same(69, group_ids=["g"]), _DESCRIBE_G),
    scanned(15, same(15, groups=["live"]), group(O.DESCRIBE, "live"), shows=True),
    scanned(16, same(16, states_filter=[]), shows=True),
    scanned(
        13,
        lambda planted: built(13, group_id="live", member_id=planted.member_id),
        group(O.READ, "live"),
        last=2,
        note="one",
        changes=True,
    ),
    scanned(
        13,
        lambda planted: built(13, group_id="live", members=[{"member_id": planted.member_id}]),
        group(O.READ, "live"),
        first=3,
    ),
    scanned(
        47,
        same(47, group_id="offsets", topics=one_partition(partition_index=0)),
        group(O.DELETE, "offsets"),
        _READ_T,
        changes=True,
    ),
    scanned(42, same(42, groups_names=["gone"]), group(O.DELETE, "gone"), changes=True),
]

_TRANSACTIONS = [
    scanned(
        22,
        lambda _: InitProducerIdRequest(transactional_id="x"),
        transaction(O.WRITE),
        changes=True,
    ),
    scanned(
        22,
        lambda _: InitProducerIdRequest(),
        topic(O.WRITE, "any"),
        note="idempotent",
        refusals={topic(O.WRITE, "any"): CLUSTER_ERROR},
    ),
    scanned(
        22,
        lambda _: InitProducerIdRequest(),
        to_cluster(O.IDEMPOTENT_WRITE),
        note="idempotent-cluster",
    ),
    scanned(24, _enlists, transaction(O.WRITE, "enlists"), _WRITE_T, last=3, changes=True),
    scanned(24, same(24, transactions=[]), _ACTION, first=4, note="brokers"),
    scanned(
        25,
        _producer(25, "adds", group_id="g"),
        transaction(O.WRITE, "adds"),
        _READ_G,
        changes=True,
    ),
    scanned(
        28,
        _producer(28, "commits", group_id="g", topics=offsets("in a transaction")),
        transaction(O.WRITE, "commits"),
        _READ_G,
        _READ_T,
        changes=True,
    ),
    scanned(
        26,
        _producer(26, "commits", committed=True),
        transaction(O.WRITE, "commits"),
        changes=True,
    ),
    scanned(61, same(61, topics=[{"name": "t", "partition_indexes": [0]}]), _READ_T),
    scanned(65, same(65, transactional_ids=["commits"]), transaction(O.DESCRIBE, "commits")),
    scanned(66, same(66, state_filters=[], producer_id_filters=[]), shows=True),
    scanned(
        20_000,
        lambda _: JoinBatchRequest(
            sink="s", query="q", batch=0, timeout_ms=WAIT_MS, nonce=UUID(int=1)
        ),
        transaction(O.WRITE, "s"),
        changes=True,
    ),
    scanned(
        20_002,
        lambda _: BatchHeartbeatRequest(sink="s", query="q", batch=0),
        transaction(O.WRITE, "s"),
    ),
    scanned(
        20_001,
        lambda _: CommitBatchRequest(sink="s", query="q", batch=0, members=frozenset()),
        transaction(O.WRITE, "s"),
    ),
    scanned(
        20_003,
        lambda _: AbortMembersRequest(sink="s", query="q", members=frozenset()),
        transaction(O.WRITE, "s"),
    ),
    scanned(20_004, lambda _: DescribeSchemasRequest(topics=["t"]), _DESCRIBE_T),
    scanned(20_005, lambda _: DescribeSinksRequest(), shows=True),
]

REQUESTS = [*_RECORDS, *_GROUPS, *_TRANSACTIONS]
"""In the order in which they are sent: what ends something comes after what needs it."""
