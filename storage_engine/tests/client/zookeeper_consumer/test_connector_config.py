"""The settings of a consumer that meets its group in ZooKeeper: each wrong one in one line."""

import pytest

from storage_engine.client.zookeeper_consumer.connector_config import ConnectorConfig
from storage_engine.core.errors import ConfigError

GIVEN = {"zookeeper.connect": "h:1/c", "group.id": "g"}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"group.id": "g"}, "zookeeper.connect is missing"),
        ({"zookeeper.connect": "h:1"}, "group.id is missing"),
        ({**GIVEN, "group.id": "a/b"}, "^group.id: "),
        ({**GIVEN, "zookeeper.connect": "h:x"}, "'x' is not a port"),
        ({**GIVEN, "consumer.death.proof": "yes"}, "must be process or none"),
        ({**GIVEN, "session.timeout.ms": 1}, "did you mean 'zookeeper.session.timeout.ms'"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(settings, complaint):
    with pytest.raises(ConfigError, match=complaint) as raised:
        ConnectorConfig.of(settings)
    assert "\n" not in str(raised.value)


def test_streams_have_the_settings_of_a_consumer():
    made = ConnectorConfig.of({**GIVEN, "max.poll.records": 7, "consumer.death.proof": "none"})
    assert (made.streams.max_poll_records, made.streams.group_id) == (7, "g")
    assert not made.sees_death
    assert made.bootstrap_servers is None, "brokers are read from their znodes"
