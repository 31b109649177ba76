"""Which topics a mirror copies, under which names and settings."""

import re

import pytest

from storage_engine.client.admin.topics import ConfigEntry
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.mirror.plan import (
    Plan,
    TopicSelection,
    check_keeps_times,
    copied_settings,
    missing_partitions,
)


def selection(include, exclude=None, target_name="{topic}"):
    return TopicSelection(
        include=re.compile(include),
        exclude=exclude and re.compile(exclude),
        target_name=target_name,
    )


def setting(name, value, source):
    return ConfigEntry(name=name, value=value, source=source, read_only=False)


def test_topics_whose_whole_name_matches_are_copied_but_for_the_brokers_own_and_the_mirrors():
    topics = {"east": ["orders", "orders-2", "my-orders", "__consumer_offsets", "__mirror_mirror"]}
    assert Plan(selection("orders.*|__.*"), topics).names == {
        ("east", "orders"): "orders",
        ("east", "orders-2"): "orders-2",
    }
    assert Plan(selection(".*", "my-.*|.*2"), topics).names == {("east", "orders"): "orders"}


def test_topics_of_several_sources_are_named_apart():
    topics = {"east": ["orders"], "west": ["orders", "clicks"]}
    with pytest.raises(ConfigError, match=r"both be copied to 'orders'.*--target-topic"):
        Plan(selection(".*"), topics)
    names = Plan(selection(".*", target_name="{source}.{topic}"), topics).names
    assert sorted(names.values()) == ["east.orders", "west.clicks", "west.orders"]


@pytest.mark.parametrize("name", ["orders", "{", "{}", "{cluster}.{topic}", "{topic.__class__}"])
def test_a_name_in_the_target_has_the_topic_in_it(name):
    with pytest.raises(ConfigError, match=r"must have \{topic\} in it"):
        selection(".*", target_name=name)


def test_a_name_that_no_topic_can_have_is_refused():
    with pytest.raises(ConfigError, match=r"topic 'orders' of east can't be copied.*characters"):
        Plan(selection(".*", target_name="{topic}/copy"), {"east": ["orders"]})


def test_settings_of_the_topic_are_copied_but_not_those_about_its_brokers():
    settings = [
        setting("retention.ms", "1000", ConfigSource.TOPIC),
        setting("segment.bytes", "1048576", ConfigSource.DEFAULT),
        setting("cleanup.policy", "compact", ConfigSource.FILE),
        setting("max.message.bytes", "2000000", ConfigSource.DEFAULT),
        setting("min.insync.replicas", "2", ConfigSource.TOPIC),
        setting("message.timestamp.type", "LogAppendTime", ConfigSource.TOPIC),
    ]
    assert copied_settings({each.name: each for each in settings}) == {
        "retention.ms": "1000",
        "cleanup.policy": "compact",
        "max.message.bytes": "2000000",
        "message.timestamp.type": "CreateTime",
    }


def test_a_topic_that_gives_copies_times_of_its_own_is_refused():
    def settings(value):
        return {
            "message.timestamp.type": setting("message.timestamp.type", value, ConfigSource.DEFAULT)
        }

    check_keeps_times("orders", {})
    check_keeps_times("orders", settings("CreateTime"))
    with pytest.raises(ConfigError, match=r"topic 'orders' .*LogAppendTime.*topics alter"):
        check_keeps_times("orders", settings("LogAppendTime"))


def test_topics_are_created_and_grown_never_shrunk():
    wanted = {"new": 3, "same": 2, "grown": 5, "larger": 1}
    present = {"same": 2, "grown": 2, "larger": 4, "another": 1}
    assert missing_partitions(wanted, present) == ({"new": 3}, {"grown": 5})
