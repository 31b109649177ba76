"""A broker's configuration: files, overrides, bounds of connections, where its metrics are."""

from pathlib import Path

import pytest

from storage_engine.broker.settings.config import (
    BrokerConfig,
    by_address,
    check_broker_setting,
    parse_overrides,
)
from storage_engine.broker.settings.listener_map import Listener
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.settings import BY_BROKER_KEY
from storage_engine.tests.broker.settings.broker_configs import NEEDED, config, refusal


def test_three_settings_are_enough() -> None:
    broker = config()
    assert broker.broker_id == 7
    assert broker.log_dirs == (Path("/data"),)
    assert broker.zookeeper_connect == "zk:2181"
    assert broker.listeners.listening == (Listener(host="", port=9092),)
    assert broker.listeners.inter_broker.port == 9092
    assert broker.listeners.inter_broker.host
    assert broker.rack is None
    assert broker.get("replica.fetch.max.bytes") == 1 << 20


@pytest.mark.parametrize("key", sorted(NEEDED))
def test_each_of_the_three_is_missed(key: str) -> None:
    given = {name: value for name, value in NEEDED.items() if name != key}
    with pytest.raises(ConfigError, match=f"^the setting '{key}' is missing: "):
        BrokerConfig.from_mapping(given)
    assert refusal({key: " "})


def test_an_unknown_key_names_the_nearest() -> None:
    assert refusal({"num.partition": "3"}) == (
        "there is no setting 'num.partition', did you mean 'num.partitions'?"
    )


def test_a_topics_name_for_a_setting_is_not_the_brokers() -> None:
    assert "did you mean 'log.retention.ms'" in refusal({"retention.ms": "1"})


def test_older_names_in_larger_units_count_when_the_own_is_absent() -> None:
    assert config(log_retention_hours="2").integer("log.retention.ms") == 7_200_000
    both = config(log_retention_hours="2", log_retention_minutes="3")
    assert both.integer("log.retention.ms") == 180_000
    assert config(log_retention_hours="2", log_retention_ms="5").integer("log.retention.ms") == 5
    assert config(log_retention_hours="-1").integer("log.retention.ms") == -1
    assert config(log_retention_hours=str(2**62)).integer("log.retention.ms") == 2**63 - 1
    assert config(log_retention_hours="2").is_given("log.retention.ms")
    assert not config().is_given("log.retention.ms")


def test_log_dir_is_log_dirs() -> None:
    given = {key: value for key, value in NEEDED.items() if key != "log.dirs"}
    assert BrokerConfig.from_mapping(given | {"log.dir": "/one"}).log_dirs == (Path("/one"),)


def test_several_log_dirs_are_taken_but_none_twice() -> None:
    assert config(log_dirs="/a, /b").log_dirs == (Path("/a"), Path("/b"))
    assert "twice" in refusal({"log.dirs": "/a,/a"})


def test_an_empty_value_is_absent_where_that_is_possible() -> None:
    assert config(broker_rack="").rack is None
    assert config(listeners="").listeners.listening[0].port == 9092
    assert config(replica_lag_max_messages="").optional_integer("replica.lag.max.messages") is None
    assert refusal({"num.partitions": ""}).startswith("num.partitions=: must be")


def test_the_connection_timeout_is_the_sessions_unless_given() -> None:
    assert config().zookeeper_connection_timeout_ms == 6000
    assert config(zookeeper_connection_timeout_ms="9").zookeeper_connection_timeout_ms == 9


def test_a_followers_fetch_waits_a_quarter_of_the_lag_time_unless_given() -> None:
    assert config().replica_fetch_wait_max_ms == 2500
    assert config(replica_lag_time_max_ms="1").replica_fetch_wait_max_ms == 1
    assert config(replica_fetch_wait_max_ms="9").replica_fetch_wait_max_ms == 9


def test_settings_that_contradict_each_other_are_told() -> None:
    waits_longer = {"replica.fetch.wait.max.ms": "500", "replica.lag.time.max.ms": "400"}
    assert refusal(waits_longer) == (
        "replica.fetch.wait.max.ms=500 must not be above replica.lag.time.max.ms=400"
    )
    assert "message.max.bytes=" in refusal({"socket.request.max.bytes": "1000"})


def test_a_wrong_zookeeper_connect_is_told() -> None:
    assert refusal({"zookeeper.connect": "zk:port"}).startswith("zookeeper.connect=")


def test_a_file_is_loaded_and_overrides_win_by_any_name(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# a broker\nbroker.id = 1\nlog.dirs=/a,\\\n    /b\nzookeeper.connect: zk\n"
        "log.retention.ms=5\n",
        encoding="utf-8",
    )
    broker = BrokerConfig.load(file, {"log.retention.hours": "1", "broker.id": "2"})
    assert broker.broker_id == 2
    assert broker.log_dirs == (Path("/a"), Path("/b"))
    assert broker.integer("log.retention.ms") == 3_600_000


def test_a_mistake_in_a_file_names_the_file_and_one_of_an_override_does_not(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=x\nlog.dirs=/a\nzookeeper.connect=zk\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(file)
    assert str(caught.value) == f"{file}: broker.id=x: must be a whole number, 0 or more"
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(file, {"broker.id": "1", "num.partitons": "1"})
    assert str(caught.value) == (
        "there is no setting 'num.partitons', did you mean 'num.partitions'?"
    )


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        BrokerConfig.load(tmp_path / "none.properties")
    with pytest.raises(ConfigError, match="can't be read"):
        BrokerConfig.load(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        BrokerConfig.load(binary)


def test_one_setting_is_checked_alone() -> None:
    assert check_broker_setting("num.partitions", "3") == 3
    assert check_broker_setting("log.roll.hours", "1") == 3_600_000
    with pytest.raises(ConfigError, match=r"\(hours\)"):
        check_broker_setting("log.roll.hours", "x")


def test_hosts_and_addresses_have_numbers_of_their_own():
    entries = ["10.0.0.7:200", "client-9: 0", "[::1]:3"]
    assert parse_overrides(entries) == {"10.0.0.7": 200, "client-9": 0, "::1": 3}


@pytest.mark.parametrize("entry", ["10.0.0.7", ":5", "host:", "host:-1", "host:many"])
def test_another_form_is_one_line_that_names_the_setting(entry):
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides=.*host:number"):
        parse_overrides([entry])


def test_a_host_given_twice_is_refused():
    with pytest.raises(ConfigError, match="host is listed twice"):
        parse_overrides(["host:1", "host:2"])


def test_a_name_counts_as_its_addresses_and_one_without_is_refused():
    assert by_address({"127.0.0.1": 5}) == {"127.0.0.1": 5}
    assert by_address({"localhost": 7})["127.0.0.1"] == 7
    with pytest.raises(ConfigError, match=r"no-such-host\.invalid has no address"):
        by_address({"no-such-host.invalid": 1})


def test_without_the_setting_there_are_no_metrics():
    assert config().metrics is None
    assert config({"metrics.listener": " "}).metrics is None


@pytest.mark.parametrize("address", ["127.0.0.1:9308", "[::1]:9308", "localhost:9308"])
def test_metrics_at_the_loopback_need_no_further_word(address):
    found = config({"metrics.listener": address}).metrics
    assert found is not None
    assert found.port == 9308


@pytest.mark.parametrize("address", ["0.0.0.0:9308", "10.0.0.7:9308", "broker-1:9308", "[::]:9308"])
def test_metrics_for_other_machines_must_be_allowed(address):
    with pytest.raises(ConfigError, match=r"metrics\.listener\.allow\.remote=true"):
        config({"metrics.listener": address})
    found = config({"metrics.listener": address, "metrics.listener.allow.remote": "true"})
    assert found.metrics is not None


@pytest.mark.parametrize(
    "address", ["9308", "127.0.0.1", "http://127.0.0.1:9308", "a:b:1", "x:70000"]
)
def test_what_is_no_address_of_metrics_is_one_line_with_an_example(address):
    with pytest.raises(ConfigError, match=r"must be HOST:PORT, e\.g\. 127\.0\.0\.1:9308"):
        config({"metrics.listener": address})


CONF = Path(__file__).parents[4] / "conf"
SAMPLES = sorted(file for file in CONF.rglob("*.properties") if file.name != "zookeeper.properties")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda file: file.name)
def test_the_samples_are_valid(sample: Path) -> None:
    BrokerConfig.load(sample)


def test_the_commented_sample_has_every_setting_at_its_default() -> None:
    shown = {}
    for line in (CONF / "server.properties").read_text(encoding="utf-8").splitlines():
        key, equals, value = line.removeprefix("#").partition("=")
        if equals and key in BY_BROKER_KEY:
            shown[key] = value
    with_effect = {key: row for key, row in BY_BROKER_KEY.items() if not row.without_effect}
    assert shown.keys() == with_effect.keys()
    for key, row in with_effect.items():
        if not row.required:
            assert shown[key] == (row.format(row.default) or ""), key
