"""A coordinator goes on over the next leader epoch where its broker leads on, and its log is read
again where another may have led (KIP-98)."""

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.broker.groups.test_consumer_groups import PARTITIONS, GroupClient
from storage_engine.tests.broker.groups.waiting_commits import (
    LOAD_MS,
    assert_nothing_is_open,
    cluster,
    code_of,
    group_with_an_offset,
    log_of_offsets,
    producer_in_transaction,
    send_offset,
    slow_loads,
)

__all__ = ["cluster", "slow_loads"]


def test_a_coordinator_that_leads_on_goes_on_when_a_follower_dies(cluster, slow_loads):
    client = group_with_an_offset(cluster)
    producer = producer_in_transaction(cluster)
    led = log_of_offsets(cluster)
    coordinator, epoch = led.leader_id, led.leader_epoch
    follower = ({1, 2, 3} - {coordinator, producer.coordinator()}).pop()
    cluster[follower].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: led.leader_epoch > epoch)
    assert led.leader_id == coordinator
    answers = send_offset(producer, 5)
    cluster.loop.run_for(LOAD_MS // 4)
    assert answers
    assert code_of(cluster, answers) is ErrorCode.NONE
    producer.end(commits=True)
    cluster.loop.run_for(1_000)
    assert_nothing_is_open(cluster)
    assert client.offset(require_stable=True) == 5


def test_members_keep_their_generation_when_a_follower_dies(cluster, slow_loads):
    client = GroupClient(cluster)
    member = client.enter()
    led = log_of_offsets(cluster)
    epoch = led.leader_epoch
    follower = ({1, 2, 3} - {led.leader_id}).pop()
    cluster[follower].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: led.leader_epoch > epoch)
    began_ms = cluster.loop.now_ms
    assert client.heartbeat(member) is ErrorCode.NONE
    assert cluster.loop.now_ms - began_ms < LOAD_MS


def test_markers_of_a_coordinator_that_leads_on_carry_its_present_epoch(cluster):
    group_with_an_offset(cluster)
    producer = producer_in_transaction(cluster)
    tp = TopicPartition("a", 0)
    producer.add(tp)
    producer.write(tp, b"1")
    broker = cluster[producer.coordinator()]
    number = state_partition(producer.transactional_id, PARTITIONS)
    led = broker.replicas.get(TopicPartition(TRANSACTION_STATE_TOPIC, number))
    before = led.leader_epoch
    state = cluster.state(tp)
    followers = {1, 2, 3} - {broker.id, state.leader}
    cluster[followers.pop()].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: led.leader_epoch == before + 1)
    producer.end(commits=True)
    cluster.loop.run_for(2_000)
    hosted = cluster[cluster.state(tp).leader].replicas.get(tp)
    entry = hosted.log.producer_state.get(producer.producer_id)
    assert entry.coordinator_epoch == before + 1


def test_an_epoch_that_was_missed_has_the_log_read_again(cluster):
    client = group_with_an_offset(cluster)
    led = log_of_offsets(cluster)
    runners = cluster[led.leader_id].parts.coordinators.groups._runners
    runner = runners[led.topic_partition]
    # As if the controller's order for the epoch between had been lost: another may have led.
    runner.leader_epoch -= 1
    epoch = led.leader_epoch
    follower = ({1, 2, 3} - {led.leader_id}).pop()
    cluster[follower].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: led.leader_epoch > epoch)
    cluster.loop.run_for(2_000)
    assert runners[led.topic_partition] is not runner
    assert client.offset() == 1
