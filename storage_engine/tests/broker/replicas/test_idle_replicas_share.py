"""Idle replicas share what they do not have: what one of them gets, no other one sees."""

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.replicas.follower_watches import FollowerWatches
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_state import ProducerStates
from storage_engine.core.transactions.partition_transactions import PartitionTransactions
from storage_engine.core.transactions.verification_guard import VerificationGuards
from storage_engine.log.appending.append_rules import append_rules_of
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.log_folder import LogFolder


class Watch:
    def note(self) -> None: ...

    def wake(self) -> None: ...


def test_a_verified_producer_may_write_to_its_partition_alone():
    here, there = VerificationGuards(), VerificationGuards()
    assert here.note_answer(here.ask(1, 0), enlisted=True)
    assert here.is_open(1, 0)
    assert not there.is_open(1, 0)
    assert not VerificationGuards().is_valid(here.ask(1, 0))


def test_a_transaction_holds_back_the_readers_of_its_partition_alone():
    here, there = PartitionTransactions(), PartitionTransactions()
    here.note_data(1, 5)
    assert here.last_stable_offset(9) == 5
    assert there.last_stable_offset(9) == 9
    assert not PartitionTransactions().ongoing


def test_a_refused_batch_matters_to_its_log_alone():
    here, there = ProducerStates(), ProducerStates()
    here.note_refused(1, 0, 3)
    assert here.copy_of([1])._refused.keys() == here._refused.keys() == {1}
    assert not there._refused
    assert not there.copy_of([1])._refused
    here.put_back([])
    assert not here._refused
    here.note_refused(2, 0, 0)
    assert not ProducerStates()._refused


def test_a_session_is_told_of_its_partition_alone():
    here, there = FollowerWatches(), FollowerWatches()
    watch = Watch()
    here.put(1, watch)
    assert here.has(1, watch)
    assert not there.has(1, watch)


def test_a_follower_begins_where_it_says_in_its_partition_alone(tmp_path):
    cluster = SimulatedCluster(tmp_path, 1, default_replication_factor="1")
    try:
        cluster.create_topic("t", 2)
        cluster.loop.run_for(5000)
        here, there = (cluster[1].replicas.get(TopicPartition("t", p)) for p in (0, 1))
        here.note_follower_log_start(2, 7)
        assert here.follower_log_starts == {2: 7}
        assert there.follower_log_starts == {}
    finally:
        cluster.close()


def test_logs_have_rules_of_their_own_where_settings_or_names_differ(tmp_path):
    def rules(name: str, **settings):
        config = LogConfig(**settings)
        pool = OpenFiles()
        return append_rules_of(
            LogFolder(disk=REAL_DISK, pool=pool, path=tmp_path / name, config=config)
        )

    assert rules("t-0") is rules("t-1")
    assert rules("t-0", max_message_bytes=7).max_message_bytes == 7
    ages = {
        rules(f"t-{p}", segment_jitter_ms=1000, segment_ms=5000).roll_rule._age_max_ms
        for p in range(5)
    }
    assert len(ages) > 1, "logs that were made together roll at different times"
