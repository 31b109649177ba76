"""What a request says it is earns nothing: who sends what only brokers may send is asked for the
right to do so before the request is decoded, gets precedence, and escapes quotas."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.guards.cluster import BROKERS_ONLY
from storage_engine.broker.settings.config_store import ConfigEntity
from storage_engine.core.errors import ErrorCode
from storage_engine.core.fair_queue import FIRST, Share
from storage_engine.core.ids import TopicPartition
from storage_engine.core.quotas import QuotaKey
from storage_engine.core.security.acl_rules import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.protocol.apis import fetch, leader_and_isr, stop_replica, update_metadata
from storage_engine.protocol.apis.registry import INTERNAL_RANGES, spec_for
from storage_engine.protocol.framing import SIZE_BYTES, encode_request_frame, parse_response
from storage_engine.tests.broker.guards.guarded_cluster import (
    ADMIN,
    BOB,
    BROKER,
    allow_only,
    come_as,
    guarded_cluster,
)
from storage_engine.tests.broker.wire_client import Client

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ORDERS = sorted(INTERNAL_RANGES)
LONG = 2_000
REPLICA, CONSUMER = 1, -1
OF_BROKERS = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[SimulatedCluster]:
    made = guarded_cluster(tmp_path_factory.mktemp("brokers"))
    assert not made.create_topic("t").error_code
    made.produced(TopicPartition("t", 0), b"first")
    yield made
    made.close()


@pytest.fixture
def decoded(cluster, monkeypatch) -> list[int]:
    """The bytes of each order that is decoded, or begun to be."""
    sizes: list[int] = []

    def counted(spec: Any) -> Any:
        def decode(version: int, body: memoryview, most_items: int) -> Any:
            sizes.append(len(body))
            return spec.decode_request(version, body, most_items)

        return replace(spec, decode_request=decode)

    table = cluster[1].parts.table
    served = {
        key: each._replace(spec=counted(each.spec)) if key in ORDERS else each
        for key, each in table._served.items()
    }
    monkeypatch.setattr(table, "get", served.get)
    return sizes


def shares_of(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> list[Share]:
    """With whom each long request takes its turn from now on."""
    taken: list[Share] = []
    work = cluster[1].parts.requests.long_work
    original = work.run_later

    def noted(call: Any, begin: Any, *, size: int) -> None:
        taken.append(call.share)
        original(call, begin, size=size)

    monkeypatch.setattr(work, "run_later", noted)
    return taken


def framed(spec: Any, version: int, message: Any) -> bytes:
    return b"".join(map(bytes, encode_request_frame(spec, version, 7, "x", message)))


def garbage(key: int, size: int) -> bytes:
    """A request whose body is no request at all."""
    head = key.to_bytes(2) + bytes(2) + (7).to_bytes(4) + (1).to_bytes(2) + b"x"
    return (len(head) + size).to_bytes(4) + head + b"\xff" * size


def long_fetch(replica_id: int, count: int = LONG) -> bytes:
    partitions = [fetch.FetchPartition(f"t{n}", 0, 0, 1) for n in range(count)]
    asked = fetch.FetchRequest(0, 0, 1, partitions, replica_id)
    return framed(fetch.API, 7, asked)


def long_order(count: int = LONG) -> bytes:
    asked = update_metadata.UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, brokers=[], partitions=[],
        removed_topics=[f"t{n}" for n in range(count)],
    )  # fmt: skip
    return framed(update_metadata.API, 0, asked)


def ask(cluster, principal, data: bytes, spec: Any, version: int) -> Any:
    """The answer; None where the connection was closed instead."""
    client = Client(cluster, frame_max_bytes=8 << 20)
    client.connection.principal = principal
    client.receive(data)
    sent = client.end()
    return parse_response(spec, version, memoryview(sent)[SIZE_BYTES:]) if sent else None


@pytest.mark.parametrize("key", ORDERS)
@pytest.mark.parametrize("size", [0, 100, 3 << 20])
def test_an_order_of_somebody_else_is_refused_without_a_look_at_it(
    cluster, decoded, key, size
) -> None:
    allow_only(cluster, [])
    spec = spec_for(key)
    answer = ask(cluster, BOB, garbage(key, size), spec, 0)
    assert answer.error_code == DENIED
    assert decoded == []


@pytest.mark.parametrize("key", ORDERS)
def test_the_same_order_of_a_broker_is_decoded(cluster, decoded, key) -> None:
    """So the refusals say nothing of the bytes: these end the connection."""
    assert ask(cluster, BROKER, garbage(key, 100), spec_for(key), 0) is None
    assert decoded == [100]


def test_an_order_is_decoded_for_whoever_may_act_as_a_broker(cluster, decoded, monkeypatch) -> None:
    taken = shares_of(cluster, monkeypatch)
    allow_only(cluster, [OF_BROKERS])
    answer = ask(cluster, BOB, long_order(), update_metadata.API, 0)
    assert answer.error_code not in (DENIED, ErrorCode.NONE), "it is not the controller"
    assert len(decoded) == 2
    assert [share[0] for share in taken] == [FIRST]


@pytest.mark.parametrize(
    ("principal", "replica_id", "share"),
    [(BROKER, REPLICA, FIRST), (BROKER, CONSUMER, BROKER), (BOB, REPLICA, BOB)],
)
def test_a_fetch_takes_its_turn_with_who_sends_it(
    cluster, monkeypatch, principal, replica_id, share
) -> None:
    taken = shares_of(cluster, monkeypatch)
    allow_only(cluster, [])
    answer = ask(cluster, principal, long_fetch(replica_id), fetch.API, 7)
    assert len(answer.partitions) == LONG
    assert [each[0] for each in taken] == [share]


def test_where_nobody_decides_on_rights_orders_take_turns_with_clients(
    tmp_path, monkeypatch
) -> None:
    open_cluster = SimulatedCluster(tmp_path, 1, default_replication_factor="1")
    taken = shares_of(open_cluster, monkeypatch)
    client = Client(open_cluster, frame_max_bytes=8 << 20)
    client.receive(long_order() + long_fetch(REPLICA) + long_fetch(CONSUMER))
    client.end()
    coarse = [share[0] for share in taken]
    assert coarse[0] == coarse[1] != coarse[2] and FIRST not in coarse
    assert {share[2] for share in taken} == {client.connection.number}
    open_cluster.close()


@pytest.mark.parametrize(
    ("data", "spec", "version"),
    [(garbage(6, 100), update_metadata.API, 0), (long_fetch(REPLICA, 5), fetch.API, 7)],
    ids=["order", "fetch"],
)
def test_no_request_escapes_a_quota_by_what_it_says_it_is(
    cluster, monkeypatch, data, spec, version
) -> None:
    allow_only(cluster, [])
    clients = cluster[1].parts.settings.clients
    for principal in (BROKER, BOB):
        clients.take(ConfigEntity.user(principal.name), {"request_percentage": "50"})
    used: list[str] = []

    def use(key: QuotaKey, *_args: Any) -> int:
        used.append(key.value)
        return 0

    monkeypatch.setattr(clients, "use", use)
    ask(cluster, BROKER, data, spec, version)
    assert used == []
    ask(cluster, BOB, data, spec, version)
    assert set(used) == {"request_percentage"}
    for principal in (BROKER, BOB):
        clients.take(ConfigEntity.user(principal.name), {})


def test_the_refusals_fit_their_apis() -> None:
    made = {
        4: leader_and_isr.LeaderAndIsrResponse,
        5: stop_replica.StopReplicaResponse,
        6: update_metadata.UpdateMetadataResponse,
    }
    assert set(BROKERS_ONLY) == set(ORDERS)
    for key, refusal in BROKERS_ONLY.items():
        assert isinstance(refusal(int(DENIED)), made.get(key, object))


def test_a_right_that_nobody_has_granted_gives_no_precedence(tmp_path, monkeypatch) -> None:
    """With allow.everyone.if.no.acl.found and no rule everybody may act as a broker."""
    made = guarded_cluster(tmp_path, allow_everyone_if_no_acl_found="true")
    taken = shares_of(made, monkeypatch)
    for principal in (BOB, BROKER):
        answer = ask(made, principal, long_order(), update_metadata.API, 0)
        assert answer.error_code != DENIED
    assert taken[0][0] not in (FIRST, BOB) and taken[1][0] is FIRST
    made.close()


def test_a_session_that_a_long_fetch_opened_goes_on_with_a_short_one(cluster, monkeypatch) -> None:
    """It belongs to the principal, with whomever the long one took its turn."""
    taken = shares_of(cluster, monkeypatch)
    come_as(cluster, BROKER)
    partitions = [fetch.FetchPartition("t", n, 0, 1) for n in range(LONG)]
    opened = fetch.FetchRequest(
        0, 0, 1, partitions, REPLICA, session_epoch=0, replica_epoch=cluster[1].broker_epoch
    )
    session_id = cluster.answer(cluster.ask(1, fetch.API, 7, opened)).session_id
    later = opened._replace(partitions=[], session_id=session_id, session_epoch=1)
    answer = cluster.answer(cluster.ask(1, fetch.API, 7, later))
    come_as(cluster, ADMIN)
    assert session_id and not answer.error_code
    assert taken[0][0] is FIRST and len(taken) == 1
