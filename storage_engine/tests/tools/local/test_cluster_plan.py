"""What `up` decides before it starts anything."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local.cluster_file import ClusterFile
from storage_engine.tools.local.cluster_plan import (
    Ports,
    UpRequest,
    parse_zookeeper_hosts,
    plan_cluster,
)

DIRECTORY = Path("/c")


def _plan(
    existing: ClusterFile | None = None,
    *,
    taken: Collection[int] = (),
    running: Collection[int] = (),
    zookeeper_runs: bool = False,
    **request: object,
) -> ClusterFile:
    free = iter(range(20_000, 21_000))
    ports = Ports(
        is_free=lambda host, port: port not in taken,
        find=lambda host, avoid: next(port for port in free if port not in avoid),
    )
    return plan_cluster(
        existing,
        UpRequest(**request),  # type: ignore[arg-type]
        directory=DIRECTORY,
        running=running,
        zookeeper_runs=zookeeper_runs,
        ports=ports,
    )


def _ports(cluster: ClusterFile) -> list[int]:
    return [entry.port for entry in cluster.brokers]


def test_a_new_cluster_has_three_brokers_on_consecutive_ports_from_9092() -> None:
    cluster = _plan()
    assert [entry.id for entry in cluster.brokers] == [1, 2, 3]
    assert _ports(cluster) == [9092, 9093, 9094]
    assert cluster.zookeeper == "127.0.0.1:2181"
    assert cluster.zookeeper_dir == "zookeeper"


def test_port_0_takes_free_ports() -> None:
    cluster = _plan(port=0, brokers=2)
    assert _ports(cluster) == [20_000, 20_001]
    assert cluster.zookeeper == "127.0.0.1:20002"


def test_the_embedded_zookeeper_steps_aside_when_its_usual_port_is_taken() -> None:
    assert _plan(taken={2181}).zookeeper == "127.0.0.1:20000"


def test_a_port_in_use_names_port_broker_and_remedy() -> None:
    with pytest.raises(CommandError, match=r"port 9093 .* for broker 2, is in use: .*--port"):
        _plan(taken={9093})


def test_an_existing_cluster_keeps_what_is_not_given() -> None:
    before = _plan(brokers=2, port=7000)
    assert _plan(before) == before


def test_added_brokers_take_the_ports_after_the_last() -> None:
    before = _plan(brokers=2, port=7000)
    assert _ports(_plan(before, brokers=3)) == [7000, 7001, 7002]


def test_fewer_brokers_than_the_folder_has_are_refused() -> None:
    with pytest.raises(CommandError, match="has 3 brokers, --brokers 2 would leave data out"):
        _plan(_plan(), brokers=2)


def test_a_given_port_moves_an_existing_cluster() -> None:
    assert _ports(_plan(_plan(), port=7000)) == [7000, 7001, 7002]


def test_a_broker_that_runs_is_not_moved() -> None:
    with pytest.raises(CommandError, match="broker 2 runs on port 9093 and can't move to 7001"):
        _plan(_plan(), port=7000, running={2})


def test_a_running_broker_does_not_find_its_own_port_in_use() -> None:
    assert _ports(_plan(_plan(), running={1, 2}, taken={9092, 9093})) == [9092, 9093, 9094]


def test_port_0_keeps_the_ports_of_before_where_they_are_free() -> None:
    assert _ports(_plan(_plan(), port=0, taken={9093})) == [9092, 20_000, 9094]


def test_brokers_beyond_the_last_port_are_wrong_usage() -> None:
    with pytest.raises(UsageError, match="need ports above 65535"):
        _plan(port=65_534)


@pytest.mark.parametrize("request_", [{"brokers": 0}, {"brokers": 101}, {"port": -1}])
def test_impossible_numbers_are_wrong_usage(request_: dict) -> None:
    with pytest.raises(UsageError, match="is impossible"):
        _plan(**request_)


def test_a_given_zookeeper_is_nobodys_child() -> None:
    cluster = _plan(zookeeper="a:1,b:2/kafka")
    assert (cluster.zookeeper, cluster.zookeeper_dir) == ("a:1,b:2/kafka", None)


def test_an_embedded_zookeeper_is_not_replaced_by_another() -> None:
    with pytest.raises(CommandError, match="has a ZooKeeper of its own"):
        _plan(_plan(), zookeeper="a:1")


def test_a_given_zookeeper_may_move() -> None:
    assert _plan(_plan(zookeeper="a:1"), zookeeper="b:1").zookeeper == "b:1"


def test_a_stopped_zookeeper_whose_port_was_taken_moves() -> None:
    assert _plan(_plan(), taken={2181}).zookeeper == "127.0.0.1:20000"


def test_a_stopped_zookeeper_does_not_move_from_under_running_brokers() -> None:
    with pytest.raises(CommandError, match=r"port 2181 .* for ZooKeeper, is in use"):
        _plan(_plan(), taken={2181}, running={1})


def test_a_running_zookeeper_stays() -> None:
    cluster = replace(_plan(), zookeeper_pid=99)
    assert _plan(cluster, taken={2181}, zookeeper_runs=True) == cluster


@pytest.mark.parametrize("hosts", ["", "a:b", ":2181", "a:1,", "a:1/", "a:1:2"])
def test_zookeeper_hosts_of_another_form_are_wrong_usage(hosts: str) -> None:
    with pytest.raises(UsageError, match="--zookeeper"):
        parse_zookeeper_hosts(hosts)


def test_the_port_of_zookeeper_may_be_left_out() -> None:
    assert parse_zookeeper_hosts("a,b:5") == [("a", 2181), ("b", 5)]
