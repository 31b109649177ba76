"""`headrace top` shows a real cluster, and what is wrong when a broker is killed."""

import json
from typing import Any

from integration_tests.support.cluster_support import create_topic, wait_until
from integration_tests.support.command_line import succeed
from storage_engine.client import Producer


def _frame(cluster) -> dict[str, Any]:
    frame: dict[str, Any] = json.loads(succeed("top", "--dir", cluster.directory, "--json"))
    return frame


def test_top_shows_topics_and_a_killed_broker_and_goes_on(cluster):
    create_topic(cluster, "shown-by-top", partitions=3)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send("shown-by-top", b"x" * 1_000).result(60)
    frame = _frame(cluster)
    assert [line["broker"] for line in frame["brokers"]] == ["1", "2", "3"]
    assert sum(line["is_controller"] for line in frame["brokers"]) == 1
    cluster.kill_broker(2)
    wait_until(lambda: cluster.state.broker(2).pid is None, "the broker is gone")
    problems = _frame(cluster)["problems"]
    assert any(line.startswith("broker 2 gives no metrics") for line in problems)
    text = succeed("top", "--dir", cluster.directory, "--once")
    assert "broker 2 gives no metrics" in text
    assert "records/s" in text
    cluster.start_broker(2)
