"""What was granted when a request was taken up, and is taken away while it waits, is refused where
the request acts: rights are revoked one turn of the loop after they were asked for."""

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.requests import produce_request
from storage_engine.broker.guards.client import RequestClient
from storage_engine.broker.requests.foreign_answers import ConvertedBatches
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.security.acl_rules import (
    CLUSTER_NAME,
    AccessRule,
    AclPermission,
    ResourcePattern,
    ResourceType,
)
from storage_engine.protocol.apis.registry import name_of, spec_for
from storage_engine.tests.broker.access.rule_requests import create, delete
from storage_engine.tests.broker.guards.api_cases import (
    CASES,
    Case,
    O,
    Right,
    group,
    to_cluster,
    topic,
    transaction,
)
from storage_engine.tests.broker.guards.guarded_cluster import (
    ADMIN,
    BOB,
    BROKER,
    REFUSALS,
    allow_only,
    authorizer_of,
    codes_in,
    come_as,
    guarded_cluster,
    wait_for_coordinators,
)
from storage_engine.tests.broker.replicas.test_producer_appends import batch_of
from storage_engine.tests.broker.typed_topics.typed_support import (
    create_typed,
    fetch,
    produced,
    topic_id_of,
    typed_batch,
)
from storage_engine.tests.log.transaction_support import transactional
from storage_engine.tests.protocol.apis.struct_classes import api_of, struct_of

OF_COORDINATORS = (8, 9, 11, 12, 13, 14, 22, 24, 25, 26, 42, 47, 20_001, 20_002, 20_003)
WAITING = [
    case
    for case in CASES
    if case.key in OF_COORDINATORS and not case.note.startswith(("idempotent", "brokers"))
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    cluster = guarded_cluster(tmp_path_factory.mktemp("waits"))
    assert not cluster.create_topic("t").error_code
    cluster.produced(TopicPartition("t", 0), b"first")
    wait_for_coordinators(cluster)
    cluster.loop.run_for(5_000)
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(made, monkeypatch):
    """The client is Bob. His rights go one turn after a request was asked for them."""
    come_as(made, BOB)
    made.loop.run_for(100)
    grant = RequestClient.grant

    def granted(self, *args, **kwargs) -> None:
        grant(self, *args, **kwargs)
        made.loop.call_soon(lambda: allow_only(made, []))

    monkeypatch.setattr(RequestClient, "grant", granted)
    yield made
    come_as(made, ADMIN)


def _ask(cluster, rights: list[Right], key: int, version: int, request):
    allow_only(cluster, rights)
    return cluster.ask(1, spec_for(key), version, request)


def _runners(cluster):
    coordinators = cluster[1].parts.coordinators
    return [
        runner
        for each in (coordinators.groups, coordinators.transactions)
        for runner in each._runners.values()
    ]


@pytest.mark.parametrize("case", WAITING, ids=str)
def test_a_request_that_waits_for_a_coordinator_is_refused(cluster, case: Case) -> None:
    """It loads, as far as the request knows."""
    loaded = [(runner, runner.coordinator) for runner in _runners(cluster)]
    assert len(loaded) == 2
    for runner, _ in loaded:
        runner.coordinator, runner._early = None, []
    ends = {runner: runner.partition.log.log_end_offset for runner, _ in loaded}
    waiting = _ask(cluster, list(case.rights), case.key, case.version, case.request())
    cluster.loop.run_for(50)
    assert not waiting, "it did not wait"
    for runner, coordinator in loaded:
        runner.coordinator = coordinator
        runner._take_early()
    answer = cluster.answer(waiting)
    assert codes_in(answer) & REFUSALS, answer
    assert {runner: runner.partition.log.log_end_offset for runner, _ in loaded} == ends


def _new_topic(name: str):
    row = struct_of(api_of(19)[1], "topics")
    return api_of(19)[1](
        topics=[row(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])],
        timeout_ms=10_000,
    )


@pytest.mark.parametrize("right", [topic(O.CREATE, "made"), to_cluster(O.CREATE)], ids=str)
def test_a_topic_is_not_made_for_who_may_not_make_it_any_more(cluster, right) -> None:
    answer = cluster.answer(_ask(cluster, [right], 19, 5, _new_topic("made")))
    assert codes_in(answer) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not cluster[1].metadata.topic_id("made")


def test_a_topic_is_not_grown(cluster) -> None:
    row = struct_of(api_of(37)[1], "topics")(name="t", count=7, assignments=None)
    grown = api_of(37)[1](topics=[row], timeout_ms=10_000)
    answer = cluster.answer(_ask(cluster, [topic(O.ALTER)], 37, 2, grown))
    assert codes_in(answer) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert len(cluster[1].metadata.partitions("t")) == 1


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("key", [33, 44])
@pytest.mark.parametrize(
    ("kind", "name", "right"),
    [(2, "t", topic(O.ALTER_CONFIGS)), (4, "1", to_cluster(O.ALTER_CONFIGS))],
)
def test_settings_stay_as_they_were(cluster, key, version, kind, name, right) -> None:
    resource = struct_of(api_of(key)[1], "resources")
    setting: dict[str, object] = {
        "name": "retention.ms" if kind == 2 else "log.retention.ms",
        "value": "86400000",
    }
    if key == 44:
        setting["config_operation"] = 0
    changed = struct_of(resource, "configs")(**setting)
    wanted = resource(resource_type=kind, resource_name=name, configs=[changed])
    request = api_of(key)[1](resources=[wanted], validate_only=False)
    answer = cluster.answer(_ask(cluster, [right], key, version, request))
    assert codes_in(answer) & REFUSALS, answer


@pytest.mark.parametrize("key", [30, 49, 51], ids=name_of)
def test_rules_quotas_and_users_stay_as_they_were(cluster, key: int) -> None:
    (case,) = (case for case in CASES if case.key == key)
    request = case.request()
    if key == 49:
        request.validate_only = False
    answer = cluster.answer(_ask(cluster, list(case.rights), key, case.version, request))
    assert codes_in(answer) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, answer


def test_rules_are_not_removed(cluster) -> None:
    come_as(cluster, ADMIN)
    alter = {"resource_type": 4, "resource_name": CLUSTER_NAME, "operation": int(O.ALTER)}
    create(cluster, alter)
    cluster.loop.run_for(1_000)
    come_as(cluster, BOB)
    (answer,) = delete(cluster, {"resource_type_filter": 4})
    assert codes_in(answer) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, answer


def test_who_waits_for_a_rebalance_learns_nothing_of_the_members(cluster, monkeypatch) -> None:
    monkeypatch.undo()
    spec, request = api_of(11)
    protocol = struct_of(request, "protocols")(name="range", metadata=b"secret")
    asked = request(
        group_id="g",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    first = cluster.answer(_ask(cluster, [group(O.READ)], 11, 2, asked))
    assert first.member_id and not first.error_code
    waiting = cluster.ask(1, spec, 2, asked)
    cluster.loop.run_for(500)
    assert not waiting
    allow_only(cluster, [])
    answer = cluster.answer(waiting, limit_ms=20_000)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert answer.members == []
    assert answer.member_id == ""


@pytest.mark.parametrize("is_lost", [True, False])
def test_rows_that_became_json_meanwhile_are_not_sent_without_the_right(
    cluster, monkeypatch, is_lost
) -> None:
    monkeypatch.undo()
    come_as(cluster, ADMIN)
    tp = TopicPartition("typed", 0)
    if not cluster[1].metadata.topic_id("typed"):
        create_typed(cluster, "typed")
        batch = typed_batch(topic_id_of(cluster, tp), 0, 3)
        assert produced(cluster, batch, tp=tp).error_code == 0
    come_as(cluster, BOB)
    allow_only(cluster, [topic(O.READ, "typed")])
    cluster[1].parts.requests.foreign_answers._cache = ConvertedBatches()
    cluster[1].loop.held = []
    waiting = fetch(cluster, tp=tp)
    cluster.loop.run_for(10)
    assert not waiting
    allow_only(cluster, [] if is_lost else [topic(O.READ, "typed")])
    cluster[1].loop.release()
    (answer,) = cluster.answer(waiting).partitions
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_lost else ErrorCode.NONE
    assert (answer.error_code, bool(answer.records)) == (code, not is_lost)


@pytest.mark.parametrize("lost", ["topic", "transaction", None])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_batch_that_was_decompressed_meanwhile_is_not_appended(
    cluster, monkeypatch, lost, is_transactional
) -> None:
    monkeypatch.undo()
    rights = {"topic": topic(O.WRITE, "c"), "transaction": transaction(O.WRITE, "p")}
    if lost == "transaction" and not is_transactional:
        pytest.skip("it has none")
    come_as(cluster, ADMIN)
    tp = TopicPartition("c", 0)
    if not cluster[1].metadata.topic_id("c"):
        assert not cluster.create_topic("c", cleanup_policy="compact").error_code
        cluster.loop.run_until(lambda: cluster[1].replicas.get(tp) is not None)
    sequence = (-1, -1, -1)
    if is_transactional:
        producer = SimulatedProducer(cluster, "p")
        producer.init()
        producer.add(tp)
        sequence = (producer.producer_id, producer.epoch, 0)
    come_as(cluster, BOB)
    allow_only(cluster, rights.values())
    log = cluster[1].replicas.get(tp).log
    end = log.log_end_offset
    # No background work begins.
    cluster[1].loop.held = []
    batch = batch_of(b"late", producer=sequence)
    name = "p" if is_transactional else None
    asked = produce_request(
        *tp, transactional(batch) if is_transactional else batch, acks=1, transactional_id=name
    )
    waiting = cluster.ask(1, spec_for(0), 8, asked)
    cluster.loop.run_for(10)
    assert not waiting
    allow_only(cluster, [right for kind, right in rights.items() if kind != lost])
    cluster[1].loop.release()
    codes = codes_in(cluster.answer(waiting))
    assert log.log_end_offset == end + (lost is None)
    refusals = {
        "topic": {ErrorCode.TOPIC_AUTHORIZATION_FAILED},
        "transaction": {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED},
    }
    assert codes == refusals.get(lost, set())


def test_an_order_of_a_broker_that_has_lost_cluster_action_is_not_carried_out(
    tmp_path, monkeypatch
) -> None:
    """It waits for its turn, and for the settings of the topic; with the right it is sent again."""
    made = guarded_cluster(
        tmp_path, super_users="User:admin", allow_everyone_if_no_acl_found="true"
    )
    action = AccessRule(str(BROKER), "*", O.CLUSTER_ACTION, AclPermission.ALLOW)
    of_others = action._replace(principal="User:nobody")
    of_cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
    authorizer = authorizer_of(made)
    authorizer.put(of_cluster, frozenset([action]))
    grant = RequestClient.grant
    revoked: list[str] = []

    def granted(self, *args, **kwargs) -> None:
        grant(self, *args, **kwargs)
        if self._call.spec.name == "LeaderAndIsr":
            revoked.append(self._call.spec.name)
            made.loop.call_soon(lambda: authorizer.put(of_cluster, frozenset([of_others])))

    monkeypatch.setattr(RequestClient, "grant", granted)
    created = _new_topic("ordered")
    waiting = made.ask(1, spec_for(19), 5, created)
    made.loop.run_for(3_000)
    assert revoked
    assert made[1].replicas.get(TopicPartition("ordered", 0)) is None
    monkeypatch.undo()
    authorizer.put(of_cluster, frozenset([action]))
    made.answer(waiting, limit_ms=60_000)
    made.loop.run_until(
        lambda: made[1].replicas.get(TopicPartition("ordered", 0)) is not None, limit_ms=60_000
    )
    made.close()
