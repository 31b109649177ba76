"""A broker's settings at run time, by themselves."""

import pytest

from storage_engine.broker.settings.dynamic_config import DynamicConfig, live_setting
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.core.settings.settings import BY_BROKER_KEY
from storage_engine.tests.broker.settings.broker_configs import config

KEY = "log.segment.bytes"


def test_the_file_counts_where_nothing_is_set() -> None:
    dynamic = DynamicConfig(config(log_segment_bytes="100"))
    assert dynamic.integer(KEY) == 100
    assert dynamic.flag("auto.create.topics.enable")
    assert [source for _, source in dynamic.chain(KEY)] == [
        ConfigSource.FILE,
        ConfigSource.DEFAULT,
    ]


def test_one_broker_counts_more_than_all_and_both_more_than_the_file() -> None:
    dynamic = DynamicConfig(config(log_segment_bytes="100"))
    dynamic.replace_layer(ConfigSource.ALL_BROKERS, {KEY: "200"})
    assert dynamic.integer(KEY) == 200
    dynamic.replace_layer(ConfigSource.BROKER, {KEY: "300"})
    assert dynamic.integer(KEY) == 300
    dynamic.replace_layer(ConfigSource.BROKER, {})
    assert dynamic.integer(KEY) == 200


def test_what_is_stored_and_impossible_counts_as_absent_and_hides_nothing() -> None:
    dynamic = DynamicConfig(config())
    stored = {"log.retention.ms": "5", KEY: "x", "log.dirs": "/x", "of.the.future": "1"}
    dynamic.replace_layer(ConfigSource.BROKER, stored)
    assert dynamic.layer(ConfigSource.BROKER) == {"log.retention.ms": 5}


def test_settings_that_contradict_the_file_are_not_taken() -> None:
    dynamic = DynamicConfig(config(socket_request_max_bytes="5000", message_max_bytes="3000"))
    dynamic.replace_layer(ConfigSource.ALL_BROKERS, {"message.max.bytes": "4000"})
    dynamic.replace_layer(ConfigSource.ALL_BROKERS, {"message.max.bytes": "6000"})
    assert dynamic.integer("message.max.bytes") == 4000
    with pytest.raises(ConfigError, match=r"must not be above socket\.request\.max\.bytes"):
        dynamic.check_layer(ConfigSource.BROKER, {"message.max.bytes": "6000"})


def test_a_setting_is_live_exactly_where_the_table_says_so() -> None:
    for key, row in BY_BROKER_KEY.items():
        if row.changes_live:
            assert live_setting(key) is row
        else:
            with pytest.raises(ConfigError, match=f"'{key}'.* can't be changed at run time"):
                live_setting(key)
