"""The settings of a consumer: each wrong one in one line."""

import pytest

from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.core.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "x:1", "group.instance.id": "i"}, "needs a group.id"),
        ({"bootstrap.servers": "x:1", "enable.auto.commit": True}, "needs a group.id"),
        ({"bootstrap.servers": "x:1", "auto.offset.reset": "first"}, "one of earliest, latest"),
        ({"bootstrap.servers": "x:1", "group.ids": "g"}, "did you mean 'group.id'"),
        ({"bootstrap.servers": "x:1", "heartbeat.interval.ms": 60_000}, "less than session"),
        ({"bootstrap.servers": "x:1", "group.protocol": "new"}, "must be classic or consumer"),
        ({"bootstrap.servers": "x:1", "group.remote.assignor": "range"}, "group.protocol=classic"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ConsumerConfig.of(settings)


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("session.timeout.ms", "set consumer.session.timeout.ms with 'headrace groups settings'"),
        ("heartbeat.interval.ms", "set consumer.heartbeat.interval.ms with"),
        ("partition.assignment.strategy", "group.remote.assignor"),
    ],
)
def test_what_only_the_classic_protocol_has_is_refused_with_the_other(key, instead):
    settings = {"bootstrap.servers": "x:1", "group.protocol": "consumer", key: 7_000}
    with pytest.raises(ConfigError, match=f"{key} can't be set with .*=consumer: .*{instead}"):
        ConsumerConfig.of(settings)
