"""Trouble that is made on purpose is told within five seconds, in words, with what to do."""

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace_console.console_settings import ConsoleSettings, Thresholds
from headrace_console.tests.console_support import Browser, running_console, within
from integration_tests.log.small_disk import DISK_BYTES, MIB, SETTINGS, fill, small_disk
from integration_tests.support.cluster_support import admin, partition_metadata, running_cluster
from storage_engine.client import Consumer, Producer
from storage_engine.core.errors import HeadraceError
from storage_engine.tests.sampling import ALL_FAULTS, in_full

PROMISED_S = 5.0
SLACK_S = 2.0 if ALL_FAULTS else 10.0
"""In full for the test's own steps; else for a machine that is three times as slow, or does other
things, too."""
RESTART_S = 60.0
SOON_S = 30.0
"""Where nothing is promised."""
STUCK_MS = LAG_MS = 1_000


@pytest.fixture(scope="module")
def browser(cluster) -> Iterator[Browser]:
    settings = ConsoleSettings(
        bootstrap_servers=cluster.bootstrap_servers,
        port=0,
        thresholds=Thresholds(stuck_after_ms=STUCK_MS, lag_after_ms=LAG_MS),
    )
    with running_console(settings) as url:
        opened = Browser(url)
        opened.get("/overview")
        yield opened
        opened.close()


@pytest.fixture
def topic(browser) -> str:
    name = f"trouble-{uuid.uuid4().hex[:8]}"
    browser.post("/topics", {"name": name, "partitions": 3, "replication_factor": 3})
    return name


def problem(browser: Browser, kind: str) -> Any:
    problems = browser.get("/overview")["problems"]
    return next((each for each in problems if each["kind"] == kind), None)


def short_of(browser: Browser, topic: str) -> int:
    """The number of its partitions that lack replicas in sync."""
    return browser.get("/topics", filter=topic)["rows"][0]["under_replicated"]


def lacks_replicas(cluster: Any, topic: str) -> bool:
    """By what the cluster tells another client."""
    seen = partition_metadata(admin(cluster), topic)
    return seen is not None and len(seen.isrs) < len(seen.replicas)


def all_brokers_answer(browser: Browser) -> bool:
    return all(each["state"] == "up" for each in browser.get("/overview")["brokers"])


def told(browser: Browser, kind: str, *, since_s: float | None = None, more_s: float = 0.0) -> Any:
    """The problem; it is there since then, by time.monotonic(), or since now."""
    began_s = time.monotonic() if since_s is None else since_s
    left_s = began_s + PROMISED_S + SLACK_S + more_s - time.monotonic()
    found = within(left_s, lambda: problem(browser, kind), kind)
    assert found["do"] and found["since_ms"]
    return found


def test_a_killed_broker_is_told_while_all_pages_go_on(browser, topic, cluster) -> None:
    strict = {"name": f"strict-{uuid.uuid4().hex[:8]}", "partitions": 2, "replication_factor": 3}
    browser.post("/topics", {**strict, "settings": {"min.insync.replicas": "3"}})
    # Files of tests share the cluster, and what other tests left may be short for good.
    within(RESTART_S, lambda: short_of(browser, strict["name"]) == 0, "its replicas are in sync")
    overview = browser.get("/overview")
    refused = overview["partitions"]["under_min_isr"]
    victim = next(each["id"] for each in overview["brokers"] if not each["is_controller"])
    cluster.kill_broker(victim)
    try:
        # Until its session ends the cluster itself believes in it.
        first = within(
            PROMISED_S + SLACK_S,
            lambda: problem(browser, "broker_silent") or problem(browser, "broker_offline"),
            "the broker",
        )
        assert first["what"].startswith(f"Broker {victim} ")
        within(RESTART_S, lambda: lacks_replicas(cluster, topic), "the cluster has taken it out")
        short = told(browser, "under_replicated")
        assert str(victim) in short["what"] and short["count"] >= 1
        within(
            SOON_S,
            lambda: browser.get("/overview")["partitions"]["under_min_isr"] >= refused + 2,
            "acks=all is refused",
        )
        assert "acks=all" in problem(browser, "under_replicated")["what"]
        offline = told(browser, "broker_offline")
        assert f"headrace start-broker --dir DIR {victim}" in offline["do"]
        within(SOON_S, lambda: short_of(browser, topic) == 3, "all partitions are short")
        browser.post(f"/topics/{topic}/records", {"value": {"text": "x"}, "partition": 0})
        (row,) = browser.get(f"/topics/{topic}/messages")["rows"]
        assert row["value"]["text"] == "x"
        lines = browser.get("/timeline", topic=topic)
        assert lines["source"] == "observed" and lines["resolution_ms"] == 2_000
        kinds = {event["kind"] for event in lines["events"]}
        assert kinds >= {"leader", "isr"}
        spans = [lane["spans"] for lane in lines["lanes"] if len(lane["spans"]) > 1]
        assert spans and spans[0][0]["leader"] == victim
    finally:
        cluster.start_broker(victim)
    within(RESTART_S, lambda: all_brokers_answer(browser), "all is well again")


@in_full
def test_a_broker_that_hangs_delays_no_page_and_is_named(tmp_path) -> None:
    # Of a cluster whose sessions last so long that it stays in the metadata.
    lasting = (("zookeeper.session.timeout.ms", "30000"),)
    with running_cluster(tmp_path / "hangs", settings=lasting) as cluster:
        settings = ConsoleSettings(bootstrap_servers=cluster.bootstrap_servers, port=0)
        with running_console(settings) as url:
            browser = Browser(url)
            name = "hangs"
            browser.post("/topics", {"name": name, "partitions": 3, "replication_factor": 3})
            hang(browser, name, cluster)
            browser.close()


def hang(browser: Browser, topic: str, cluster: Any) -> None:
    entry = cluster.state.brokers[0]
    os.kill(entry.pid, signal.SIGSTOP)
    try:
        silent = told(browser, "broker_silent")
        assert f"Broker {entry.id} does not answer" in silent["what"]
        for path in ("/overview", "/topics", f"/topics/{topic}/partitions", "/groups"):
            answer = browser.ask(path)
            assert answer.elapsed.total_seconds() < PROMISED_S, path
            brokers = [each["broker"] for each in answer.json()["unanswered"]]
            assert brokers == [entry.id], path
    finally:
        os.kill(entry.pid, signal.SIGCONT)
    within(RESTART_S, lambda: all_brokers_answer(browser), "it answers again")
    clients = [e for e in browser.get("/timeline")["events"] if e["kind"] == "client"]
    assert clients and f"no answer from broker {entry.id}" in clients[0]["words"]


def test_a_transaction_that_holds_up_readers_is_told_with_its_owner(browser, topic, cluster):
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic}
    producer = Producer(config)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"x", partition=2).result(60)
    found = told(browser, "stuck_transaction", more_s=STUCK_MS / 1000)
    assert f"The transaction of '{topic}' has been open" in found["what"]
    assert found["subjects"] == [f"{topic}-2"]
    assert "same transactional.id" in found["do"]
    producer.abort_transaction()
    producer.close()
    within(SOON_S, lambda: not problem(browser, "stuck_transaction"), "it has ended")


def test_a_disk_that_is_full_is_told_with_what_to_do(tmp_path) -> None:
    folder = tmp_path / "full"
    data = folder / "broker-1" / "data"
    with (
        small_disk(data) as is_small,
        running_cluster(folder, brokers=1, settings=SETTINGS) as cluster,
        running_console(
            ConsoleSettings(bootstrap_servers=cluster.bootstrap_servers, port=0)
        ) as url,
        contextlib.closing(Browser(url)) as browser,
    ):
        if not is_small:
            pytest.skip("this user can't mount a file system: the disk can't be filled")
        browser.post("/topics", {"name": "full", "partitions": 1, "replication_factor": 1})
        assert problem(browser, "full_disk") is None
        make_room = fill(cluster, data, is_small=True)
        full_s = time.monotonic()
        with pytest.raises(HeadraceError), slow_to_give_up(cluster) as producer:
            for _ in range(20):
                producer.send("full", bytes(MIB // 2)).result(20)
                full_s = time.monotonic()
        found = told(browser, "full_disk", since_s=full_s)
        assert found["severity"] == "critical"
        assert f"The disk of broker 1 with {data} is full" in found["what"]
        assert "log.dir.min.free.bytes keeps 4 MiB" in found["what"]
        assert "retention" in found["do"] and "headrace reassign" in found["do"]
        (disk,) = browser.get("/overview")["brokers"][0]["disk"]
        assert disk["total_bytes"] == DISK_BYTES and 0 < disk["free_bytes"] < 6 * MIB
        make_room()
        within(PROMISED_S + SLACK_S, lambda: not problem(browser, "full_disk"), "there is room")


def slow_to_give_up(cluster: Any) -> Producer:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "delivery.timeout.ms": 2_000}
    return Producer({**settings, "request.timeout.ms": 1_000, "linger.ms": 0})


def test_a_group_that_stops_to_read_is_told_with_how_long_and_what_to_do(
    browser, topic, cluster
) -> None:
    group = f"slow-{topic}"
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    consumer = Consumer({**servers, "group.id": group, "auto.offset.reset": "earliest"})
    with Producer(servers) as producer, contextlib.closing(consumer):
        producer.send(topic, b"first", partition=1).result(60)
        consumer.subscribe([topic])
        within(SOON_S, lambda: consumer.poll(500), "the first record")
        consumer.commit()
        for number in range(5):
            producer.send(topic, b"%d" % number, partition=1).result(60)
        found = told(browser, "lagging_group", more_s=LAG_MS / 1000)
        assert found["what"].startswith(f"Group '{group}' is 5 records behind; the first of them")
        assert f"the oldest of them in {topic}-1" in found["what"]
        assert "start more of them" in found["do"]
        (row,) = browser.get("/groups", filter=group)["rows"]
        assert row["lag"] == 5 and row["lag_ms"] >= LAG_MS
        assert browser.get(f"/topics/{topic}")["groups"] == [group]
        read = 0
        while read < 5:
            read += len(consumer.poll(1_000))
        consumer.commit()
        within(SOON_S, lambda: not problem(browser, "lagging_group"), "it has caught up")


def test_a_query_that_falls_behind_or_fails_is_told(browser) -> None:
    query = str(uuid.uuid4())
    event = {
        "kind": "progress",
        "at_ms": 1,
        "query": {"id": query, "run_id": str(uuid.uuid4()), "name": "delays"},
        "progress": {"batchId": 3, "processedRowsPerSecond": 10.0, "durationMs": {"addBatch": 5}},
        "lag": 5_000,
        "topics": ["flights"],
    }
    post(browser, event)
    lagging = told(browser, "lagging_query")
    assert "Query 'delays' is 5000 records behind; at its 10 records" in lagging["what"]
    post(browser, {**event, "kind": "terminated", "exception": "boom\n  at line 1"})
    failed = told(browser, "failed_query")
    assert failed["what"] == "Query 'delays' has failed: boom"
    assert problem(browser, "lagging_query") is None
    document = browser.get(f"/queries/{query}")
    assert document["state"] == "failed" and len(document["history"]) == 2


def post(browser: Browser, event: dict) -> None:
    answer = browser.client.post(
        "/queries/progress",
        json={"format": 1, "events": [event]},
        headers={"X-Headrace-Progress": "1"},
    )
    assert answer.status_code == 204, answer.text
