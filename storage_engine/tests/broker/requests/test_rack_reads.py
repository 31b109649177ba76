"""Consumers read from an in-sync replica in their rack (KIP-392), and only while it is one."""

from collections.abc import Iterator

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import fetch_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import API as FETCH

TP = TopicPartition("t", 0)
LAG_MAX_MS = 3000
RACKS = ("rack-1", "rack-2", "rack-3")
RECORDS = 3


class Racks:
    """A partition on three racks; `leader` leads it and `follower` lies in the consumer's rack."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        assert cluster.create_topic("t").error_code == 0
        for number in range(RECORDS):
            assert cluster.produced(TP, b"record %d" % number) == number
        cluster.wait_in_sync(TP, 1, 2, 3)
        self.leader = cluster.state(TP).leader
        self.follower = self.leader % 3 + 1
        self.rack = f"rack-{self.follower}"
        self.settle()

    def settle(self) -> None:
        """Until all know the ISR and the high watermark."""
        self.cluster.loop.run_for(1000)

    def fetch(self, broker: int, offset: int = 0, *, rack: str | None = None):
        return self.fetch_later(broker, offset, rack=rack, wait_ms=0)()

    def fetch_later(self, broker: int, offset: int, *, rack: str | None = None, wait_ms: int):
        rack = self.rack if rack is None else rack
        answers = self.cluster.fetch(broker, TP, offset, wait_ms=wait_ms, rack=rack)
        return lambda: self.cluster.answer(answers).partitions[0]

    def code(self, broker: int, offset: int = 0, *, rack: str | None = None) -> ErrorCode:
        return ErrorCode.of(self.fetch(broker, offset, rack=rack).error_code)

    def preferred(self, offset: int = 0, *, rack: str | None = None) -> int:
        """As the leader says."""
        return self.fetch(self.leader, offset, rack=rack).preferred_read_replica


@pytest.fixture
def racks(tmp_path) -> Iterator[Racks]:
    cluster = SimulatedCluster(
        tmp_path,
        racks=RACKS,
        replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector",
        replica_lag_time_max_ms=str(LAG_MAX_MS),
    )
    yield Racks(cluster)
    cluster.close()


def test_the_leader_names_the_replica_in_the_consumers_rack_and_sends_nothing(racks):
    answer = racks.fetch(racks.leader)
    assert answer.preferred_read_replica == racks.follower
    assert not answer.records
    assert (answer.error_code, answer.high_watermark) == (0, RECORDS)


def test_the_leader_names_it_at_once_also_to_a_fetch_that_would_wait(racks):
    answer = racks.fetch_later(racks.leader, RECORDS, wait_ms=30_000)
    started_ms = racks.cluster.loop.now_ms
    assert answer().preferred_read_replica == racks.follower
    assert racks.cluster.loop.now_ms - started_ms < 100


def test_the_follower_answers_with_records(racks):
    answer = racks.fetch(racks.follower)
    assert answer.error_code == 0
    assert b"record 0" in bytes(answer.records)


@pytest.mark.parametrize("rack", ["", "rack-9"])
def test_a_consumer_without_a_rack_or_of_another_reads_from_the_leader(racks, rack):
    answer = racks.fetch(racks.leader, rack=rack)
    assert b"record 0" in bytes(answer.records)
    assert answer.preferred_read_replica == -1
    assert racks.code(racks.follower, rack=rack) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_in_the_leaders_rack_stays_there(racks):
    assert racks.preferred(rack=f"rack-{racks.leader}") == -1


def test_a_fetch_that_waits_at_a_follower_is_answered_by_the_next_record(racks):
    answer = racks.fetch_later(racks.follower, RECORDS, wait_ms=30_000)
    racks.cluster.loop.run_for(500)
    started_ms = racks.cluster.loop.now_ms
    racks.cluster.produced(TP, b"the next")
    assert b"the next" in bytes(answer().records)
    assert racks.cluster.loop.now_ms - started_ms < 1000


def test_a_follower_serves_nothing_above_its_high_watermark(racks):
    """The other follower is cut off: what the leader appends is not committed."""
    other = next(b for b in (1, 2, 3) if b not in (racks.leader, racks.follower))
    racks.cluster.network.cut(racks.leader, other)
    racks.cluster.produce(racks.leader, TP, b"uncommitted")
    racks.cluster.loop.run_for(LAG_MAX_MS // 3)
    log = racks.cluster[racks.follower].logs.logs[TP]
    assert log.log_end_offset == RECORDS + 1
    answer = racks.fetch(racks.follower, RECORDS)
    assert (answer.error_code, answer.high_watermark) == (0, RECORDS)
    assert not answer.records


def test_an_offset_that_a_follower_has_not_got_is_not_out_of_range(racks):
    assert racks.code(racks.follower, RECORDS + 5) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert racks.code(racks.leader, RECORDS + 5) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_that_is_cut_off_from_its_leader_sends_consumers_back(racks):
    racks.cluster.network.cut(racks.leader, racks.follower)
    racks.cluster.loop.run_for(LAG_MAX_MS + 1)
    assert racks.code(racks.follower) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # It leaves the ISR with the next record, and is named no more.
    racks.cluster.produce(racks.leader, TP, b"more")
    racks.cluster.loop.run_until(lambda: racks.follower not in racks.cluster.state(TP).isr)
    assert racks.preferred() == -1
    racks.cluster.network.heal()
    racks.cluster.wait_in_sync(TP, 1, 2, 3)
    racks.settle()
    assert racks.preferred() == racks.follower
    assert racks.code(racks.follower) is ErrorCode.NONE


def test_a_follower_that_is_cut_off_from_zookeeper_sends_consumers_back(racks):
    racks.cluster[racks.follower].session.cut_off()
    racks.cluster.loop.run_for(SESSION_TIMEOUT_MS + 1)
    assert racks.code(racks.follower) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_dead_follower_is_named_until_its_session_ends_and_no_longer(racks):
    racks.cluster[racks.follower].kill()
    racks.cluster.loop.run_for(SESSION_TIMEOUT_MS + 1000)
    answer = racks.fetch(racks.leader)
    assert answer.preferred_read_replica == -1
    assert b"record 0" in bytes(answer.records)


def test_a_consumer_that_knows_a_newer_leader_epoch_is_told_to_wait(racks):
    request = fetch_request(TP.topic, TP.partition, 0, rack=racks.rack)
    epoch = racks.cluster.state(TP).leader_epoch
    wanted = request.partitions[0]._replace(current_leader_epoch=epoch + 1)
    message = request._replace(partitions=[wanted])
    answer = racks.cluster.answer(racks.cluster.ask(racks.follower, FETCH, 11, message))
    assert ErrorCode.of(answer.partitions[0].error_code) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_without_the_setting_only_leaders_are_read_from(tmp_path):
    cluster = SimulatedCluster(tmp_path, racks=RACKS)
    racks = Racks(cluster)
    assert racks.preferred() == -1
    assert racks.code(racks.follower) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.close()
