"""The settings of a producer: each wrong one, and each wrong pair, in one line."""

import pytest

from storage_engine.client.producer.producer_config import ProducerConfig
from storage_engine.core.errors import ConfigError

SERVERS = {"bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "bootstrap.servers is missing; give host:port of a broker or more, or zookeeper.con"),
        (SERVERS | {"bootstrap.server": "x"}, "did you mean 'bootstrap.servers'?"),
        (SERVERS | {"linger_ms": 3}, "not a setting of the producer; did you mean 'linger.ms'?"),
        (SERVERS | {"acks": "2"}, "acks is '2'; it must be all (-1), 1 or 0"),
        (SERVERS | {"compression.type": "rar"}, "it must be one of none, gzip, snappy, lz4, zstd"),
        (SERVERS | {"batch.size": -1}, "batch.size is -1; it must be a whole number from 1 to"),
        (SERVERS | {"retries": -1}, "retries is -1; it must be a whole number"),
        (SERVERS | {"retries": "many"}, "retries is 'many'; it must be a whole number"),
        (SERVERS | {"acks": 1, "enable.idempotence": True}, "enable.idempotence needs acks=all"),
        (SERVERS | {"acks": 1, "transactional.id": "t"}, "transactional.id needs acks=all"),
        (SERVERS | {"delivery.timeout.ms": 5, "linger.ms": 5}, "it must be more than linger.ms"),
        (
            SERVERS | {"max.in.flight.requests.per.connection": 6},
            "at most 5 with enable.idempotence",
        ),
        (
            SERVERS | {"zookeeper.connect": "h:2"},
            "bootstrap.servers and zookeeper.connect are both given; leave one",
        ),
        ({"zookeeper.connect": "h:x"}, "zookeeper.connect=h:x: 'x' is not a port; write"),
        ({"zookeeper.connect": ""}, "zookeeper.connect is ''; it must be a text"),
        (
            SERVERS | {"zookeeper.connection.timeout.ms": 5},
            "zookeeper.connection.timeout.ms needs zookeeper.connect",
        ),
    ],
)
def test_a_wrong_setting_is_one_line_with_the_remedy(settings, message):
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.of(settings)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
