"""The server.properties that `up` writes: safe by default, and never over a person's own lines."""

from pathlib import Path

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.properties import parse_properties
from storage_engine.tools.errors import UsageError
from storage_engine.tools.local.broker_settings import (
    check_cluster_settings,
    check_settings,
    format_properties,
    merge_settings,
    parse_setting,
    read_settings,
    write_settings,
)

DECIDED = {
    "broker.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "/c/broker-1/data",
    "zookeeper.connect": "127.0.0.1:2181",
}


def _merge(
    present: dict[str, str] | None = None,
    *,
    overrides: tuple[tuple[str, str], ...] = (),
    before: int = 0,
    now: int = 3,
) -> dict[str, str]:
    return merge_settings(
        present or {},
        decided=DECIDED,
        overrides=overrides,
        brokers_before=before,
        brokers_now=now,
    )


def test_three_brokers_replicate_three_times_and_want_two_in_sync() -> None:
    settings = _merge()
    assert settings["default.replication.factor"] == "3"
    assert settings["offsets.topic.replication.factor"] == "3"
    assert settings["transaction.state.log.replication.factor"] == "3"
    assert settings["min.insync.replicas"] == "2"


def test_fewer_brokers_replicate_as_often_as_they_are() -> None:
    settings = _merge(now=2)
    assert settings["default.replication.factor"] == "2"
    assert "min.insync.replicas" not in settings


def test_a_broker_accepts_what_is_written(tmp_path: Path) -> None:
    for count in (1, 2, 3, 5):
        check_settings(tmp_path / "server.properties", _merge(now=count))


def test_a_setting_given_wins_and_lasts() -> None:
    given = (("min.insync.replicas", "1"), ("num.partitions", "6"))
    first = _merge(overrides=given)
    assert first["min.insync.replicas"] == "1"
    assert _merge(first, before=3) == first


def test_a_setting_given_replaces_its_other_names() -> None:
    settings = _merge(
        {"log.retention.hours": "5"}, overrides=(("log.retention.ms", "1000"),), before=3
    )
    assert "log.retention.hours" not in settings


def test_safe_defaults_follow_the_number_of_brokers_unless_changed() -> None:
    one = _merge(now=1)
    assert _merge(one, before=1, now=3)["default.replication.factor"] == "3"
    changed = {**one, "offsets.topic.replication.factor": "2"}
    assert _merge(changed, before=1, now=3)["offsets.topic.replication.factor"] == "2"


def test_a_listener_that_a_person_wrote_stays_while_its_port_is_right() -> None:
    mine = {**_merge(), "listeners": "PLAINTEXT://0.0.0.0:9092"}
    assert _merge(mine, before=3)["listeners"] == "PLAINTEXT://0.0.0.0:9092"
    elsewhere = {**mine, "listeners": "PLAINTEXT://0.0.0.0:7000"}
    assert _merge(elsewhere, before=3)["listeners"] == DECIDED["listeners"]


@pytest.mark.parametrize("value", ["", " a", "a b", "c:\\d", "x=y", "#no", "tab\t", "ä", "a\nb"])
def test_a_written_value_is_read_back_the_same(value: str) -> None:
    text = format_properties({"some key": value})
    assert parse_properties(text, source="test") == {"some key": value}


def test_a_file_that_says_the_same_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# mine\nbroker.id = 1\n")
    write_settings(path, {"broker.id": "1"})
    assert path.read_text().startswith("# mine")
    write_settings(path, {"broker.id": "2"})
    assert read_settings(path) == {"broker.id": "2"}


def test_a_setting_without_equals_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"'--set num\.partitions' is not of the form KEY=VALUE"):
        parse_setting("num.partitions")


def test_a_misspelled_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        check_cluster_settings([("num.partition", "3")])


@pytest.mark.parametrize("key", ["broker.id", "log.dirs", "log.dir", "listeners"])
def test_a_setting_that_differs_from_broker_to_broker_is_wrong_usage(key: str) -> None:
    value = {"broker.id": "4", "listeners": "PLAINTEXT://:1"}.get(key, "/x")
    with pytest.raises(UsageError, match="would give all brokers the same"):
        check_cluster_settings([(key, value)])
