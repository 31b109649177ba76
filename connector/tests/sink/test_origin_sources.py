"""The name of the source that a row comes from: its topic's id, or the topic's name."""

import pytest

from connector.connections import close_all
from connector.errors import ConnectorError
from connector.sink.origin_sources import source_names
from connector.tests.options.parsed import sink
from storage_engine.core.ids import topic_id_to_text
from storage_engine.protocol.apis.wire import NO_TOPIC_ID
from storage_engine.tests.client.fake_cluster import FakeCluster

KEYED = {"idempotentKey": "topic,partition,offset", "sinkId": "s"}


@pytest.fixture
def fake():
    cluster = FakeCluster()
    cluster.add_topic("t", [1])
    yield cluster
    close_all()
    cluster.close()


def names(**options):
    return source_names(sink(**KEYED, **options).origin)


def test_a_topic_is_known_by_its_id_and_is_another_source_when_it_is_created_again(fake):
    source_of = names(originServers=fake.bootstrap_servers)
    first = source_of("t")
    assert first == source_of("t") == f"id:{topic_id_to_text(fake.topic_ids['t'])}"
    fake.create_again("t", [1])
    assert source_of("t") == f"id:{topic_id_to_text(fake.topic_ids['t'])}" != first


def test_without_a_cluster_of_origins_the_name_counts():
    assert names(originServers="none")("t") == "t"


def test_a_topic_whose_id_is_not_known_is_one_line_with_the_remedy(fake):
    fake.topic_ids["t"] = NO_TOPIC_ID
    with pytest.raises(ConnectorError) as raised:
        names(originServers=fake.bootstrap_servers)("t")
    assert str(raised.value).startswith("[UNKNOWN_ORIGIN] a row comes from the topic 't', whose id")
    assert "set 'originServers' to the cluster it comes from, or to none" in str(raised.value)
    assert "\n" not in str(raised.value)
