"""The topics that keep the state of coordinators: brokers alone write to them and create them, with
the settings that they need (KIP-98)."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.tests.broker.groups.test_consumer_groups import GroupClient
from storage_engine.tests.broker.support import cluster_fixture, code_of, refused
from storage_engine.tests.broker.transactions.test_transactions import producer

cluster = cluster_fixture(
    "a", offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1"
)


@pytest.mark.parametrize(
    ("topic", "min_in_sync"), [(TRANSACTION_STATE_TOPIC, 2), (GROUP_OFFSETS_TOPIC, 1)]
)
def test_a_state_topic_is_compacted_and_the_brokers_own(cluster, topic, min_in_sync):
    first, tp = producer(cluster), TopicPartition(topic, 0)
    assert GroupClient(cluster).commit(1) is ErrorCode.NONE
    leader = cluster.state(tp).leader
    config = cluster[leader].replicas.get(tp).config
    assert config.log.compacts and config.min_insync_replicas == min_in_sync
    forged = cluster.answer(cluster.produce(leader, tp, b"forged"))
    assert code_of(forged) is ErrorCode.INVALID_TOPIC_EXCEPTION
    deleted = cluster.answer(cluster.delete_topic(topic)).responses[0]
    assert ErrorCode.of(deleted.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
    created = cluster.create_topic(topic)
    assert ErrorCode.of(created.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
    with refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        first.add(tp)
