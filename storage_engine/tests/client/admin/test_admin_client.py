"""What `Admin` itself adds to the requests: defaults, and what is not there."""

import pytest

from storage_engine.client import EARLIEST, Admin, NewTopic
from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.describe_log_dirs import DescribeLogDirsResponse


@pytest.fixture
def admin(fake):
    with Admin({"bootstrap.servers": fake.bootstrap_servers}) as made:
        yield made


def test_a_controller_that_is_not_alive_is_none(fake, admin):
    fake.controller_id = 9
    described = admin.describe_cluster()
    assert described.controller_id is None
    assert [each.broker_id for each in described.brokers] == [1, 2, 3]


def test_a_key_without_a_schema_is_refused_before_anything_is_asked(fake, admin):
    with pytest.raises(ConfigError, match="a key is given without a schema"):
        admin.create_topics([NewTopic(name="t")], key=["id"])
    assert fake.asked == []


def test_log_dirs_of_all_live_brokers_are_asked_for_where_none_is_named(fake, admin):
    fake.admin = lambda *_: DescribeLogDirsResponse()
    assert admin.describe_log_dirs() == {1: (), 2: (), 3: ()}
    assert admin.describe_log_dirs([2]) == {2: ()}


def test_partitions_may_be_plain_pairs_and_a_time_after_all_records_is_none(fake, admin):
    fake.add_topic("t", [1, 2])
    fake.partition("t", 0).start_offset = 5
    fake.partition("t", 1).readable_to = -1
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    assert admin.list_offsets({("t", 0): EARLIEST, ("t", 1): 99}) == {t0: 5, t1: None}
