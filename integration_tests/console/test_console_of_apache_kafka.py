"""The console beside Apache Kafka: what the protocol carries is shown, and the rest says so."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.arguments import default_folder
from benchmarks.beside_kafka.jars import KAFKA, KRAFT, fetch_jars
from benchmarks.beside_kafka.kafka_cluster import running_kafka
from benchmarks.beside_kafka.kraft_cluster import running_kraft
from headrace_console.console_settings import ConsoleSettings, Thresholds
from headrace_console.tests.console_support import Browser, running_console, within
from storage_engine.client import Consumer
from storage_engine.tests.sampling import in_full
from storage_engine.tools.errors import CommandError

SETTINGS = (("offsets.topic.replication.factor", "1"), ("offsets.topic.num.partitions", "4"))
NEVER_FULL = Thresholds(disk_full_percent=100.0)
"""The disk of the machine that runs the tests may be as full as it likes."""
SOON_S = 60.0


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    try:
        jars = fetch_jars(default_folder(), KAFKA)
    except CommandError as error:
        pytest.skip(str(error))
    with running_kafka(tmp_path / "kafka", jars, SETTINGS, 1) as kafka:
        settings = ConsoleSettings(
            bootstrap_servers=kafka.bootstrap_servers, port=0, thresholds=NEVER_FULL
        )
        with running_console(settings) as url:
            opened = Browser(url)
            yield opened
            opened.close()


@in_full
def test_topics_messages_and_groups_of_apache_kafka_are_shown(browser: Browser) -> None:
    within(SOON_S, lambda: browser.get("/session")["cluster"]["kind"] == "kafka", "its kind")
    features = browser.get("/session")["features"]
    assert not features["sinks"] and not features["typed_topics"]
    created = browser.post("/topics", {"name": "flights", "partitions": 2})
    assert created["schema"] is None and created["typed"] is False
    assert {each["name"] for each in created["settings"]} >= {"retention.ms", "cleanup.policy"}
    for number in range(6):
        body = {"partition": number % 2, "value": {"text": f'{{"n": {number}}}'}}
        browser.post("/topics/flights/records", body)
    found = browser.get("/topics/flights/messages", path="$.n", equals="4")
    assert [row["value"]["text"] for row in found["rows"]] == ['{"n": 4}']
    (batch, *_) = browser.get("/topics/flights/batches", partition=0)["rows"]
    assert batch["crc_ok"] and batch["records"] == 1
    servers = browser.get("/session")["cluster"]["name"]
    config = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(config) as consumer:
        consumer.subscribe(["flights"])
        read = 0
        while read < 6:
            read += len(consumer.poll(1_000))
        consumer.commit()
        shown = ("g", 1, 0)
        within(SOON_S, lambda: group_of(browser) == shown, "the group, which has read all")
    preview = browser.post("/groups/g/reset/preview", {"to": "earliest"})
    browser.post("/groups/g/reset/apply", {"preview_id": preview["preview_id"], "confirm": "g"})
    assert browser.get("/groups/g")["lag"] == 6
    refused = browser.ask("/sinks")
    assert refused.status_code == 501 and "only Headrace has that API" in refused.text
    overview = within(SOON_S, lambda: well(browser), "nothing is wrong")
    assert overview["brokers"][0]["disk"][0]["total_bytes"] > 0
    assert browser.get("/timeline")["source"] == "observed"
    broker = overview["brokers"][0]["id"]
    assert browser.get(f"/brokers/{broker}/settings", filter="log.dirs")["rows"]
    assert browser.ask("/brokers/99/settings").status_code == 404
    deleted = browser.change("DELETE", "/topics/flights", {"confirm": "flights"})
    assert deleted.status_code == 200, deleted.text


@in_full
def test_a_consumer_group_of_apache_kafka_is_shown_with_epochs_and_targets(
    tmp_path: Path,
) -> None:
    try:
        jars = fetch_jars(default_folder(), KRAFT)
    except CommandError as error:
        pytest.skip(str(error))
    with running_kraft(tmp_path / "kafka", jars) as kafka:
        settings = ConsoleSettings(
            bootstrap_servers=kafka.bootstrap_servers, port=0, thresholds=NEVER_FULL
        )
        with (
            running_console(settings) as url,
            Consumer(
                {
                    "bootstrap.servers": kafka.bootstrap_servers,
                    "group.id": "g",
                    "group.protocol": "consumer",
                }
            ) as consumer,
        ):
            browser = Browser(url)
            browser.post("/topics", {"name": "flights", "partitions": 2})
            consumer.subscribe(["flights"])
            within(SOON_S, lambda: consumer.poll(100) == [] and consumer.assignment, "its part")
            consumer.commit()
            within(SOON_S, lambda: group_of(browser) == ("g", 1, 0), "the group with its member")
            (row,) = browser.get("/groups", filter="g")["rows"]
            assert row["group_type"] == "consumer"
            within(SOON_S, lambda: browser.get("/groups/g")["state"] == "Stable", "its state")
            group = browser.get("/groups/g")
            browser.close()
    assert (group["group_type"], group["protocol"]) == ("consumer", "uniform")
    assert group["epoch"] == group["assignment_epoch"] > 0
    (member,) = group["members"]
    assert member["epoch"] == group["epoch"]
    both = [{"topic": "flights", "partition": number} for number in range(2)]
    assert member["partitions"] == member["target"] == both
    assert member["topics"] == ["flights"]


def group_of(browser: Browser) -> Any:
    """As the list of groups has it: its name, members and lag."""
    for row in browser.get("/groups", filter="g")["rows"]:
        return row["group"], row["members"], row["lag"]
    return None


def well(browser: Browser) -> Any:
    """The overview, once it tells of no problem and of the disk: on a slow machine a broker may not
    answer a look in time."""
    overview = browser.get("/overview")
    if overview["problems"] or not overview["brokers"][0]["disk"]:
        return None
    return overview
