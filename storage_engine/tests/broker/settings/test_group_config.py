"""The settings that groups have of their own: requests, bounds, and who hears of them."""

import pytest

from storage_engine.broker.settings.config_store import ConfigEntity
from storage_engine.broker.settings.group_config import GroupConfigs, GroupRules, OwnGroupTimes
from storage_engine.core.errors import ConfigError, ErrorCode
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.protocol.messages import list_config_resources
from storage_engine.tests.broker.settings.broker_configs import config
from storage_engine.tests.broker.settings.settings_requests import (
    DELETE,
    DONE,
    SET,
    SOON_MS,
    alter,
    describe,
    replace_all,
    stored,
)

GROUP = 32
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ODD_NAME = "a/b c%"


def of_group(broker, group: str = "g") -> OwnGroupTimes:
    return broker.parts.settings.groups.of(group)


def listed(cluster, broker: int) -> list[str]:
    """The groups among the resources with settings."""
    request = list_config_resources.ListConfigResourcesRequest(resource_types=[GROUP])
    answer = cluster.answer(cluster.ask(broker, list_config_resources.API, 1, request))
    return [row.resource_name for row in answer.config_resources]


def test_a_groups_settings_reach_all_brokers(topic):
    assert alter(topic, 2, GROUP, "g", (SESSION, SET, "50000")) == DONE
    assert of_group(topic[2]) == (50_000, None)
    topic.loop.run_for(SOON_MS)
    assert [of_group(broker) for broker in topic.brokers] == [(50_000, None)] * 3


def test_a_name_with_any_characters_has_settings_of_its_own(topic):
    assert alter(topic, 1, GROUP, ODD_NAME, (INTERVAL, SET, "6000")) == DONE
    topic.loop.run_for(SOON_MS)
    assert of_group(topic[3], ODD_NAME) == (None, 6_000)
    assert stored(topic, "groups/a%2Fb%20c%25") == {INTERVAL: "6000"}


def test_a_deleted_setting_is_the_brokers_again(topic):
    alter(topic, 1, GROUP, "g", (SESSION, SET, "50000"), (INTERVAL, SET, "6000"))
    assert alter(topic, 1, GROUP, "g", (SESSION, DELETE, None)) == DONE
    assert of_group(topic[1]) == (None, 6_000)


def test_the_older_request_replaces_all_settings(topic):
    alter(topic, 1, GROUP, "g", (SESSION, SET, "50000"))
    assert replace_all(topic, 1, GROUP, "g", consumer_heartbeat_interval_ms="6000") == DONE
    assert of_group(topic[1]) == (None, 6_000)


def test_a_broker_that_starts_reads_the_settings_of_all_groups(topic):
    alter(topic, 1, GROUP, "g", (SESSION, SET, "50000"))
    topic.loop.run_for(SOON_MS)
    topic[3].kill()
    topic[3].start()
    topic.loop.run_until(lambda: of_group(topic[3]) == (50_000, None), limit_ms=200_000)


def test_a_group_that_sets_nothing_has_the_brokers_values(topic):
    entries = describe(topic, 1, GROUP, "no-such-group")
    assert {name: entry.value for name, entry in entries.items()} == {
        SESSION: "45000",
        INTERVAL: "5000",
    }
    assert {entry.config_source for entry in entries.values()} == {ConfigSource.DEFAULT}


def test_a_groups_own_value_comes_before_the_brokers(topic):
    alter(topic, 1, GROUP, "g", (SESSION, SET, "50000"))
    entry = describe(topic, 2, GROUP, "g")[SESSION]
    assert (entry.value, entry.config_source) == ("50000", ConfigSource.GROUP)
    assert [(each.name, each.value) for each in entry.synonyms] == [
        (SESSION, "50000"),
        (f"group.{SESSION}", "45000"),
    ]


def test_groups_with_settings_are_listed(topic):
    alter(topic, 1, GROUP, "h", (SESSION, SET, "50000"))
    alter(topic, 1, GROUP, "g", (SESSION, SET, "50000"))
    alter(topic, 1, GROUP, "h", (SESSION, DELETE, None))
    topic.loop.run_for(SOON_MS)
    assert listed(topic, 2) == ["g"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            [(SESSION, SET, "44999")],
            "consumer.session.timeout.ms=44999: must be from 45000 "
            "(group.consumer.min.session.timeout.ms) to 60000 "
            "(group.consumer.max.session.timeout.ms)",
        ),
        (
            [(INTERVAL, SET, "15001")],
            "consumer.heartbeat.interval.ms=15001: must be from 5000 "
            "(group.consumer.min.heartbeat.interval.ms) to 15000 "
            "(group.consumer.max.heartbeat.interval.ms)",
        ),
        (
            [("consumer.session.timeout", SET, "1")],
            "there is no group setting 'consumer.session.timeout', did you mean "
            "'consumer.session.timeout.ms'?",
        ),
        (
            [(SESSION, SET, "soon")],
            "consumer.session.timeout.ms=soon: must be a whole number, 1 or more (ms)",
        ),
    ],
)
def test_an_impossible_value_is_refused_with_its_bounds(topic, changes, message):
    assert alter(topic, 1, GROUP, "g", *changes) == (ErrorCode.INVALID_CONFIG, message)
    assert stored(topic, "groups/g") == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the id of a group must not be empty"),
        ("g" * 250, "a group with settings has an id of at most 249 bytes"),
    ],
)
def test_a_group_that_can_have_no_settings_is_refused(topic, name, message):
    change = (SESSION, SET, "50000")
    assert alter(topic, 1, GROUP, name, change) == (ErrorCode.INVALID_REQUEST, message)


def test_a_session_as_short_as_the_heartbeats_is_refused():
    rules = GroupRules(config(group_consumer_min_session_timeout_ms="5000"))
    with pytest.raises(ConfigError, match=r"timeout\.ms=5000: must be above .*interval\.ms=5000"):
        rules.check_together({SESSION: "5000"})


def test_a_stored_value_out_of_bounds_counts_as_the_nearest_within():
    configs = GroupConfigs(config())
    configs.take("g", {SESSION: "1", INTERVAL: "99999999"})
    assert configs.of("g") == (45_000, 15_000)


def test_a_stored_value_that_is_none_counts_as_absent(caplog):
    configs = GroupConfigs(config())
    configs.take("g", {SESSION: "soon", "share.session.timeout.ms": "1"})
    assert configs.of("g") == (None, None)
    ignored = [each for each in caplog.records if "setting of group 'g' ignored" in each.message]
    assert len(ignored) == 2


def test_only_a_change_is_told():
    configs = GroupConfigs(config())
    told: list[str] = []
    configs.on_changed = told.append
    for value in ("50000", "50000", "51000"):
        configs.take("g", {SESSION: value})
    assert told == ["g", "g"]


def test_a_path_that_escaping_gives_to_no_group_is_none():
    assert ConfigEntity.parse("groups/a%2Fb") == ConfigEntity.group("a/b")
    assert ConfigEntity.parse("groups/a b") is None
    assert ConfigEntity.parse("groups/") is None
