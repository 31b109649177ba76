"""R-CTL10: who reads ZooKeeper as the documents (000 and 001) describe it finds every node
in exactly that form; further keys are those that the documents have no place for.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from integration_tests.support.cluster_support import (
    SESSION_TIMEOUT_MS,
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)

INTS = [int]
REPLICAS = {str: INTS}
SCHEMAS: Mapping[str, tuple[dict[str, Any], set[str]]] = {
    "/brokers/ids/": (
        {"version": int, "host": str, "port": int, "jmx_port": int},
        {"endpoints", "rack", "tail_lost_epoch", "features"},
    ),
    "/brokers/topics/t": (
        {"version": int, "partitions": REPLICAS},
        {"topic_id", "original_replicas", "target_replicas"},
    ),
    "/state": (
        {"version": int, "isr": INTS, "leader": int, "controller_epoch": int, "leader_epoch": int},
        {"joined_epochs"},
    ),
    "/controller": ({"version": int, "brokerid": int}, {"timestamp"}),
}
"""Beginning or end of a path -> the documented keys and their types, and the further keys."""


@pytest.fixture
def cluster(tmp_path):
    with running_cluster(tmp_path, settings=(("auto.leader.rebalance.enable", "false"),)) as made:
        yield made


@pytest.fixture
def zookeeper(cluster):
    client = KazooClient(cluster.state.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def read(client: KazooClient, path: str) -> Any:
    return json.loads(client.get(path)[0])


def check(value: Any, schema: Any) -> None:
    match schema:
        case {**fields} if str in fields:
            assert isinstance(value, dict)
            for key, item in value.items():
                assert key.isdigit()
                check(item, fields[str])
        case {**fields}:
            assert isinstance(value, dict)
            assert fields.keys() <= value.keys()
            for key, kind in fields.items():
                check(value[key], kind)
        case [kind]:
            assert isinstance(value, list)
            for item in value:
                check(item, kind)
        case kind:
            assert type(value) is kind


def check_node(client: KazooClient, path: str, name: str) -> None:
    keys, further = SCHEMAS[name]
    value = read(client, path)
    check(value, keys)
    assert value.keys() - keys.keys() <= further


def test_what_brokers_and_controller_write(cluster, zookeeper):
    create_topic(cluster, "t", partitions=3)
    for broker in ("1", "2", "3"):
        check_node(zookeeper, f"/brokers/ids/{broker}", "/brokers/ids/")
    assert sorted(zookeeper.get_children("/brokers/ids")) == ["1", "2", "3"]
    check_node(zookeeper, "/brokers/topics/t", "/brokers/topics/t")
    assert sorted(zookeeper.get_children("/brokers/topics/t/partitions")) == ["0", "1", "2"]
    for partition in range(3):
        path = f"/brokers/topics/t/partitions/{partition}/state"
        check_node(zookeeper, path, "/state")
        assert (
            read(zookeeper, path)["isr"]
            == read(zookeeper, "/brokers/topics/t")["partitions"][str(partition)]
        )
    check_node(zookeeper, "/controller", "/controller")
    assert zookeeper.get("/controller")[1].ephemeralOwner != 0
    epoch = zookeeper.get("/controller_epoch")[0]
    assert epoch == b"%d" % int(epoch)  # a bare integer


def test_what_others_may_write_is_acted_on_and_removed(cluster, zookeeper):
    """As the documents' own tools did: each request is one node, which goes when it is done."""
    zookeeper.ensure_path("/brokers/topics")
    zookeeper.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2],"1":[2,1]}}')
    client = admin(cluster)
    for partition in (0, 1):
        wait_for_isr(client, "t", 2, partition)
    check_node(zookeeper, "/brokers/topics/t", "/brokers/topics/t")

    cluster.kill_broker(1)
    wait_until(lambda: leader_of(client, "t", 0) == 2, "the follower leads")
    cluster.start_broker(1)
    wait_for_isr(client, "t", 2, 0)
    ask(zookeeper, "/admin/preferred_replica_election", {"partitions": [part("t", 0)]})
    wait_until(lambda: leader_of(client, "t", 0) == 1, "the preferred replica leads")

    ask(
        zookeeper,
        "/admin/reassign_partitions",
        {"partitions": [{**part("t", 1), "replicas": [3, 2]}]},
    )
    assert read(zookeeper, "/brokers/topics/t")["partitions"] == {"0": [1, 2], "1": [3, 2]}
    state = read(zookeeper, "/brokers/topics/t/partitions/1/state")
    assert (sorted(state["isr"]), state["leader"] in (2, 3)) == ([2, 3], True)

    zookeeper.ensure_path("/admin")
    ask(zookeeper, "/admin/delete_topics", {"topics": ["t"]})
    wait_until(lambda: zookeeper.exists("/brokers/topics/t") is None, "the topic is deleted")


def part(topic: str, partition: int) -> dict[str, Any]:
    return {"topic": topic, "partition": partition}


def ask(client: KazooClient, path: str, request: dict[str, Any]) -> None:
    """Put a request there, and wait until it is gone."""
    data = json.dumps({"version": 1, **request}).encode()
    if client.exists(path) is None:
        client.create(path, data, makepath=True)
    else:
        client.set(path, data)

    def is_done() -> bool:
        try:
            return client.get(path)[0] in (b"", b"{}") and not client.get_children(path)
        except NoNodeError:
            return True

    wait_until(is_done, f"{path} is done", timeout_s=30 + SESSION_TIMEOUT_MS / 1000)
