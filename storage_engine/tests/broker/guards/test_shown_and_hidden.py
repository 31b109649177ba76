"""What those who may not do everything get to see, and when a change of the rules counts."""

from uuid import UUID

import pytest

from simulation.world.requests import make_batch
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition, topic_id_to_text
from storage_engine.core.ports import TransportError
from storage_engine.core.security.acl_rules import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.protocol.apis.describe_sinks import DescribeSinksRequest
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest
from storage_engine.protocol.apis.join_batch import JoinBatchRequest
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.apis.registry import spec_for
from storage_engine.tests.broker.guards.guarded_cluster import (
    ADMIN,
    BOB,
    allow_only,
    come_as,
    guarded_cluster,
    wait_for_coordinators,
)
from storage_engine.tests.protocol.apis.struct_classes import api_of, struct_of

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MINE, SECRET = TopicPartition("mine", 0), TopicPartition("secret", 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    cluster = guarded_cluster(tmp_path_factory.mktemp("shown"))
    for tp in (MINE, SECRET):
        assert not cluster.create_topic(tp.topic).error_code
        cluster.produced(tp, b"first")
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(made):
    """The client is Bob, without rights."""
    allow_only(made, [])
    come_as(made, BOB)
    yield made
    come_as(made, ADMIN)


def _ask(cluster, key: int, version: int, request):
    return cluster.answer(cluster.ask(1, spec_for(key), version, request))


def _metadata(cluster, version: int = 12, **asked):
    return _ask(cluster, 3, version, MetadataRequest(**asked))


def test_a_question_for_all_topics_shows_those_that_one_may_describe(cluster) -> None:
    assert _metadata(cluster).topics == []
    allow_only(cluster, [(WRITE, TOPIC, "mine")])
    answer = _metadata(cluster)
    assert [(topic.topic, topic.error_code) for topic in answer.topics] == [("mine", 0)]
    assert answer.brokers, "brokers are shown to everybody"


def test_a_topic_that_one_may_not_describe_is_answered_as_one_that_is_not_there(cluster) -> None:
    rows = _metadata(cluster, topics=["secret", "nothing"], allow_auto_topic_creation=True).topics
    assert [(row.topic, row.error_code, row.partitions) for row in rows] == [
        ("secret", DENIED, []),
        ("nothing", DENIED, []),
    ]
    assert len({row.topic_id for row in rows}) == 1


def test_the_id_of_a_topic_that_one_may_not_describe_is_unknown(cluster) -> None:
    topic_id = cluster[1].metadata.topic_id("secret")
    (row,) = _metadata(cluster, topics=[], topic_ids=[topic_id]).topics
    assert (row.topic, row.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    allow_only(cluster, [(DESCRIBE, TOPIC, "secret")])
    (row,) = _metadata(cluster, topics=[], topic_ids=[topic_id]).topics
    assert row.topic == "secret"


def test_metadata_says_what_one_may_do(cluster) -> None:
    allow_only(cluster, [(READ, TOPIC, "mine"), (AclOperation.CREATE, CLUSTER, CLUSTER_NAME)])
    answer = _metadata(
        cluster,
        version=10,
        topics=["mine"],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert answer.topics[0].authorized_operations == 1 << READ | 1 << DESCRIBE
    assert answer.cluster_authorized_operations == 1 << AclOperation.CREATE


def test_a_request_for_several_topics_is_answered_for_the_allowed_ones(cluster) -> None:
    allow_only(cluster, [(WRITE, TOPIC, "mine")])
    items = [ProducePartition(tp.topic, tp.partition, make_batch()) for tp in (SECRET, MINE)]
    answer = _ask(cluster, 0, 8, ProduceRequest(None, 1, 1000, items))
    codes = {row.topic: row.error_code for row in answer.partitions}
    assert codes == {"mine": 0, "secret": DENIED}


def test_a_refused_request_without_answer_closes_the_connection(cluster) -> None:
    items = [ProducePartition("secret", 0, make_batch())]
    answer = _ask(cluster, 0, 8, ProduceRequest(None, 0, 1000, items))
    assert isinstance(answer, TransportError)
    assert answer.reason == "produce with acks=0 to secret-0 is not allowed"


def _fetch(cluster, *topics: str, session: tuple[int, int] = (0, 0), wait_ms: int = 0, offset=0):
    partitions = [FetchPartition(topic, 0, offset, 1 << 20) for topic in topics]
    request = FetchRequest(
        wait_ms, 1, 1 << 20, partitions, session_id=session[0], session_epoch=session[1]
    )
    return cluster.ask(1, FETCH, 11, request)


def test_a_fetch_session_ends_to_bring_records_when_the_right_is_taken_away(cluster) -> None:
    allow_only(cluster, [(READ, TOPIC, "mine"), (READ, TOPIC, "secret")])
    first = cluster.answer(_fetch(cluster, "mine", "secret"))
    assert all(row.records for row in first.partitions)
    assert first.session_id
    allow_only(cluster, [(READ, TOPIC, "mine")])
    second = cluster.answer(_fetch(cluster, session=(first.session_id, 1)))
    rows = {row.topic: row for row in second.partitions}
    assert rows["secret"].error_code == DENIED
    assert not rows["secret"].records
    assert rows["secret"].high_watermark == -1
    assert rows["mine"].records
    allow_only(cluster, [(READ, TOPIC, "mine"), (READ, TOPIC, "secret")])
    third = cluster.answer(_fetch(cluster, session=(first.session_id, 2)))
    assert {row.topic: row.error_code for row in third.partitions} == {"mine": 0, "secret": 0}


def test_a_fetch_that_waits_brings_nothing_when_the_right_is_taken_away(cluster) -> None:
    allow_only(cluster, [(READ, TOPIC, "secret"), (WRITE, TOPIC, "secret")])
    end = cluster[1].replicas.get(SECRET).log.log_end_offset
    waiting = _fetch(cluster, "secret", session=(0, -1), wait_ms=30_000, offset=end)
    cluster.loop.run_for(1000)
    assert not waiting
    allow_only(cluster, [])
    partition = cluster[1].replicas.get(SECRET)
    partition.append(make_batch(payload=b"news"), acks=1)
    answer = cluster.answer(waiting, limit_ms=40_000)
    assert [(row.error_code, bytes(row.records or b"")) for row in answer.partitions] == [
        (DENIED, b"")
    ]


def test_a_fetch_by_topic_id_is_refused_under_the_id(cluster) -> None:
    text = topic_id_to_text(cluster[1].metadata.topic_id("secret"))
    request = FetchRequest(0, 1, 1 << 20, [FetchPartition(text, 0, 0, 1 << 20)])
    (row,) = _ask(cluster, 1, 13, request).partitions
    assert (row.topic, row.error_code) == (text, DENIED)


def test_whoever_poses_as_a_replica_gets_nothing(cluster) -> None:
    allow_only(cluster, [(READ, TOPIC, "secret")])
    request = FetchRequest(0, 1, 1 << 20, [FetchPartition("secret", 0, 0, 1 << 20)], 2)
    (row,) = _ask(cluster, 1, 11, request).partitions
    assert (row.error_code, bytes(row.records or b"")) == (DENIED, b"")


def test_listings_show_what_one_may_describe(cluster) -> None:
    come_as(cluster, ADMIN)
    wait_for_coordinators(cluster)
    commit = api_of(8)[1]
    topic_class = struct_of(commit, "topics")
    row = struct_of(topic_class, "partitions")(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
    )
    for group in ("g", "h"):
        asked = commit(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[topic_class(name="secret", partitions=[row])],
        )
        answer = _ask(cluster, 8, 5, asked)
        assert not answer.topics[0].partitions[0].error_code
    come_as(cluster, BOB)
    listed = api_of(16)[1]
    assert _ask(cluster, 16, 4, listed(states_filter=[])).groups == []
    allow_only(cluster, [(DESCRIBE, ResourceType.GROUP, "g")])
    assert [g.group_id for g in _ask(cluster, 16, 4, listed(states_filter=[])).groups] == ["g"]
    allow_only(cluster, [(DESCRIBE, CLUSTER, CLUSTER_NAME)])
    assert len(_ask(cluster, 16, 4, listed(states_filter=[])).groups) == 2
    # The offsets of all topics are those of topics that one may describe.
    allow_only(cluster, [(DESCRIBE, ResourceType.GROUP, "g")])
    offsets = api_of(9)[1]
    assert _ask(cluster, 9, 5, offsets(group_id="g", topics=None)).topics == []
    allow_only(cluster, [(DESCRIBE, ResourceType.GROUP, "g"), (DESCRIBE, TOPIC, "secret")])
    (found,) = _ask(cluster, 9, 5, offsets(group_id="g", topics=None)).topics
    assert found.name == "secret"


def test_of_sinks_those_are_shown_that_one_may_describe_with_topics_one_may_see(cluster) -> None:
    come_as(cluster, ADMIN)
    sink, transaction = "of-spark", ResourceType.TRANSACTIONAL_ID
    # The first to ask makes the coordinators' topic.
    _ask(cluster, 10, 3, api_of(10)[1](key=sink, key_type=1))
    join = JoinBatchRequest(sink=sink, query="q", batch=4, timeout_ms=60_000, nonce=UUID(int=1))
    for _ in range(100):
        joined = _ask(cluster, 20_000, 0, join)
        if not joined.error_code:
            break
        cluster.loop.run_for(100)
    enlist = api_of(24)[1]
    wanted = struct_of(enlist, "transactions")
    topics = struct_of(wanted, "topics")
    asked = enlist(
        v3_and_below_transactional_id=f"__headrace_sink/{sink}",
        v3_and_below_producer_id=joined.producer_id,
        v3_and_below_producer_epoch=joined.producer_epoch,
        v3_and_below_topics=[topics(name="secret", partitions=[0])],
    )
    for _ in range(100):
        answer = _ask(cluster, 24, 3, asked)
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        if not rows[0].partition_error_code:
            break
        cluster.loop.run_for(100)
    assert not joined.error_code and not rows[0].partition_error_code
    come_as(cluster, BOB)

    def shown() -> list:
        return list(_ask(cluster, 20_005, 0, DescribeSinksRequest()).queries)

    assert shown() == []
    allow_only(cluster, [(DESCRIBE, transaction, sink)])
    assert [each.members[0].partitions for each in shown()] == [[]]
    allow_only(cluster, [(DESCRIBE, transaction, sink), (DESCRIBE, TOPIC, "secret")])
    assert [each.members[0].partitions for each in shown()] == [[SECRET]]


def _create(cluster, name: str, version: int):
    request = api_of(19)[1]
    row = struct_of(request, "topics")
    config = struct_of(row, "configs")(name="retention.ms", value="4711000")
    topic = row(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[config])
    (created,) = _ask(cluster, 19, version, request(topics=[topic], timeout_ms=10_000)).topics
    assert not created.error_code, created.error_message
    return created


@pytest.mark.parametrize("version", [5, 7])
def test_who_makes_a_topic_is_told_its_settings_with_a_right_to_them(cluster, version) -> None:
    """KIP-525."""
    hidden, told = f"hidden-{version}", f"told-{version}"
    create, describe = AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS
    allow_only(cluster, [(create, TOPIC, hidden), (create, TOPIC, told), (describe, TOPIC, told)])
    created = _create(cluster, hidden, version)
    assert created.topic_config_error_code == DENIED
    assert (created.num_partitions, created.replication_factor, created.configs) == (-1, -1, [])
    created = _create(cluster, told, version)
    assert not created.topic_config_error_code
    assert (created.num_partitions, created.replication_factor) == (2, 1)
    settings = {each.name: (each.value, each.config_source) for each in created.configs}
    assert settings["retention.ms"] == ("4711000", ConfigSource.TOPIC)
    assert settings["cleanup.policy"] == ("delete", ConfigSource.DEFAULT)
