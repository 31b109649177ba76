"""Producer ids that clients make up and spread over many partitions: what a broker remembers."""

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import produce_request
from storage_engine.broker.quotas import new_producers
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_state import IDLE_MS
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.tests.broker.replicas.test_producer_appends import batch_of, leading

MOST, PARTITIONS = 100, 8
KNOWN = 1


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(new_producers, "BROKER_PRODUCERS_MAX", MOST)
    monkeypatch.setattr(new_producers, "FEW", 4)
    monkeypatch.setattr(new_producers, "COUNTED_EACH", 1)
    monkeypatch.setattr("storage_engine.broker.upkeep.log_maintenance.BROKER_PRODUCERS_MAX", MOST)
    made = SimulatedCluster(tmp_path, 2, default_replication_factor="2")
    assert made.create_topic("t", PARTITIONS).error_code == 0
    for number in range(PARTITIONS):
        made.loop.run_until(lambda n=number: leading(made, TopicPartition("t", n)) is not None)
    yield made
    made.close()


def write(cluster, number: int, *producers: int, sequence: int = 0) -> ErrorCode:
    """Send one request with a batch of each producer to this partition."""
    tp = TopicPartition("t", number)
    records = b"".join(
        bytes(batch_of(b"v", codec="none", producer=(each, 0, sequence))) for each in producers
    )
    request = produce_request(*tp, memoryview(records), acks=-1)
    answer = cluster.answer(cluster.ask(leading(cluster, tp).leader_id, PRODUCE, 8, request))
    return ErrorCode.of(answer.partitions[0].error_code)


def remembered(broker) -> int:
    return sum(len(replica.log.producer_state) for replica in broker.replicas)


def flood(cluster, first: int) -> int:
    """Ever new producers write to all partitions in turn until all refuse; how many could."""
    taken, refused, each = 0, 0, first
    while refused < PARTITIONS:
        each += 1
        code = write(cluster, each % PARTITIONS, each)
        assert code in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS), code
        taken += code is ErrorCode.NONE
        refused = 0 if code is ErrorCode.NONE else refused + 1
        assert taken <= MOST, "nothing is refused"
    return taken


def test_made_up_producers_over_many_partitions_leave_room_on_every_broker(cluster):
    assert write(cluster, 0, KNOWN) is ErrorCode.NONE
    assert MOST // 4 < flood(cluster, 1000) < MOST
    cluster.loop.run_for(2_000)
    assert all(remembered(broker) < MOST for broker in cluster.brokers)
    assert write(cluster, 0, KNOWN, sequence=1) is ErrorCode.NONE, "a known one goes on"


def test_one_request_of_many_new_producers_is_refused_whole(cluster):
    assert write(cluster, 0, *range(10, 10 + MOST)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert write(cluster, 0, *range(10, 20)) is ErrorCode.NONE


def test_another_principal_and_one_that_begins_a_few_find_room(cluster, monkeypatch):
    flood(cluster, 1000)
    # What is noted here is in no log.
    monkeypatch.setattr(new_producers, "COUNTED_EACH", 10 * MOST)
    for broker in cluster.brokers:
        admission = new_producers.NewProducers(
            lambda broker=broker: (each.log.producer_state for each in broker.replicas),
            cluster.loop,
        )
        admission.count()
        admission.note("User:crowd", MOST // 4)
        assert admission.free_for("User:honest") > 0
        assert admission.free_for("User:crowd") < 1
        # However full it is.
        admission.note("User:other crowd", 2 * MOST)
        assert admission.free_for("User:honest") == new_producers.FEW


def test_silent_producers_go_when_the_broker_has_many_and_others_may_begin(cluster):
    assert write(cluster, 0, KNOWN) is ErrorCode.NONE
    first = flood(cluster, 1000)
    cluster.loop.run_for(2 * IDLE_MS + 130_000)
    assert all(remembered(broker) < first for broker in cluster.brokers)
    assert write(cluster, 0, 99) is ErrorCode.NONE
