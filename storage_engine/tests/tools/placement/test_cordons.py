"""Brokers that take no new replicas: the setting is written, and waited for. Source: KIP-1066."""

import json

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import DeadlineExceededError
from storage_engine.tests.client.fake_cluster import Asked, Fault
from storage_engine.tests.tools.placement.moved_replicas import CORDONED, kinds
from storage_engine.tools.cli import main
from storage_engine.tools.placement.cordons import ALL_LOG_DIRS, read_cordons, set_cordons


def test_the_setting_of_each_broker_is_read_and_a_dead_one_has_none(moved, cluster):
    moved.settings["1"][CORDONED] = "/a"
    moved.settings["2"][CORDONED] = ""
    moved.settings["3"][CORDONED] = "*"
    moved.stop_broker(3)
    assert read_cordons(cluster, [4, 3, 2, 1]) == {1: "/a", 2: None, 3: None, 4: None}


def test_each_broker_gets_its_own_setting_or_loses_it(moved, cluster):
    moved.settings["3"][CORDONED] = "*"
    set_cordons(cluster, {3: None, 1: ALL_LOG_DIRS, 2: "/a"})
    assert kinds(moved, "set") == [
        ("set", "1", CORDONED, "*"),
        ("set", "2", CORDONED, "/a"),
        ("set", "3", CORDONED, None),
    ]


@pytest.mark.parametrize("value", [ALL_LOG_DIRS, None])
def test_it_is_waited_for_until_the_broker_has_it(moved, cluster, value):
    moved.settings["1"] = {} if value else {CORDONED: ALL_LOG_DIRS}
    moved.late["1"] = 3
    set_cordons(cluster, {1: value})
    assert moved.late["1"] == 0
    assert read_cordons(cluster, [1]) == {1: value}


def test_a_broker_that_does_not_take_it_in_time_is_told(moved):
    moved.late["1"] = 1_000_000
    with (
        Cluster(moved.bootstrap_servers, deadline_ms=200) as cluster,
        pytest.raises(DeadlineExceededError) as told,
    ):
        set_cordons(cluster, {1: ALL_LOG_DIRS})
    assert str(told.value) == (f"{CORDONED} of broker 1: it is not in force yet (tried for 200 ms)")


def test_a_dead_broker_is_not_waited_for(moved, cluster):
    moved.stop_broker(1)
    set_cordons(cluster, {1: ALL_LOG_DIRS})
    assert moved.settings["1"] == {CORDONED: "*"}, "it finds it when it starts again"


def test_a_broker_that_dies_while_it_is_waited_for_is_not_waited_for_longer(moved, cluster):
    def dies(asked: Asked) -> Fault | None:
        if asked.api != "DescribeConfigs":
            return None
        moved.servers.pop(1, None)
        return Fault.DROP

    server = moved.servers[1]
    moved.fault = dies
    set_cordons(cluster, {1: ALL_LOG_DIRS})
    moved.servers[1] = server


def run(moved, command: str, *more: str) -> int:
    return main([command, *more, "--bootstrap-server", moved.bootstrap_servers])


def test_commands_tell_what_has_changed_and_what_was_so_before(moved, capsys):
    moved.settings["1"]["broker.host.name"] = "h1"
    moved.settings["2"] = {"broker.host.name": "h1", CORDONED: "*"}
    assert run(moved, "cordon", "h1", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    told = [(row["broker"], row["machine"], row["is_cordoned"], row["changed"]) for row in rows]
    assert told == [(1, "h1", True, True), (2, "h1", True, False)]
    assert read_all(moved) == {1: "*", 2: "*", 3: None, 4: None}
    assert run(moved, "uncordon", "1") == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["1", "h1", "not", "cordoned"]
    assert read_all(moved) == {1: None, 2: "*", 3: None, 4: None}
    assert run(moved, "uncordon", "3") == 0
    assert capsys.readouterr().out.rstrip().endswith("not cordoned, as before")
    moved.place((1, 3))
    moved.stop_broker(3)
    assert run(moved, "uncordon", "3") == 0
    assert capsys.readouterr().out.rstrip().endswith("not cordoned"), "what it had is not known"


def read_all(moved):
    return {each: moved.settings[str(each)].get(CORDONED) for each in range(1, 5)}
