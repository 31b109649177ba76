"""The screens of the console on a real cluster: what they show, and what they change."""

import json
import threading
import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.tests.console_support import Browser, running_console, within
from storage_engine.client import Admin, Consumer, Producer
from storage_engine.client.cluster import Cluster
from storage_engine.client.micro_batches import MicroBatches
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.dead_letter_headers import OFFSET, PARTITION, REASON, TOPIC
from storage_engine.protocol.records.record_encoder import encode_batches

SOON_S = 30.0
HTML = "<img src=x onerror=alert(1)></script>"


@pytest.fixture(scope="module")
def browser(cluster) -> Iterator[Browser]:
    settings = ConsoleSettings(bootstrap_servers=cluster.bootstrap_servers, port=0)
    with running_console(settings) as url:
        opened = Browser(url)
        yield opened
        opened.close()


@pytest.fixture
def topic(browser) -> str:
    name = f"console-{uuid.uuid4().hex[:8]}"
    browser.post("/topics", {"name": name, "partitions": 3, "replication_factor": 3})
    return name


@pytest.fixture
def producer(cluster) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as made:
        yield made


def test_a_topic_is_created_altered_and_deleted_with_its_name_typed_again(browser, topic) -> None:
    change = {"settings": {"retention.ms": "60000"}, "partitions": 5}
    refused = browser.change("PATCH", f"/topics/{topic}", {**change, "confirm": "other"})
    assert refused.status_code == 400 and "typed again" in refused.text
    altered = browser.change("PATCH", f"/topics/{topic}", {**change, "confirm": topic}).json()
    assert altered["partitions"] == 5
    (setting,) = [each for each in altered["settings"] if each["name"] == "retention.ms"]
    assert (setting["value"], setting["source"]) == ("60000", "topic")
    rows = browser.get(f"/topics/{topic}/partitions", limit=2)
    assert (rows["total"], len(rows["rows"])) == (5, 2)
    assert browser.change("DELETE", f"/topics/{topic}", {"confirm": ""}).status_code == 400
    assert browser.change("DELETE", f"/topics/{topic}", {"confirm": topic}).status_code == 200
    assert browser.ask(f"/topics/{topic}").status_code == 404
    assert browser.get("/topics", filter=topic)["total"] == 0


def test_a_setting_that_nobody_has_set_is_not_taken_for_a_secret(browser) -> None:
    (row,) = browser.get("/brokers/1/settings", filter="advertised.listeners")["rows"]
    assert (row["value"], row["sensitive"]) == (None, False)
    (row,) = browser.get("/brokers/1/settings", filter="ssl.key.password")["rows"]
    assert (row["value"], row["sensitive"]) == (None, True)


def test_messages_are_found_by_key_value_header_field_time_and_offset(
    browser, topic, producer
) -> None:
    began_ms = int(time.time() * 1000) - 60_000
    for number in range(30):
        producer.send(
            topic,
            json.dumps({"n": number, "deep": {"list": [number]}}),
            f"k{number}",
            headers=[("origin", b"o%d" % number)],
            timestamp_ms=began_ms + number,
            partition=number % 3,
        )
    producer.flush()
    path = f"/topics/{topic}/messages"
    newest = browser.get(path, limit=4)
    assert [json.loads(row["value"]["text"])["n"] for row in newest["rows"]] == [29, 28, 27, 26]
    rest = browser.get(path, limit=500, **{"from": newest["next"]["from"]})
    numbers = [json.loads(row["value"]["text"])["n"] for row in rest["rows"]]
    assert numbers == list(range(25, -1, -1)), "a second page goes on where the first has ended"
    assert rest["next"] is None
    for params in (
        {"key": "k17"},
        {"key": "^k1[7]$", "regex": 1},
        {"value": '"n": 17,'},
        {"header": "origin=o17"},
        {"path": "$.deep.list[0]", "equals": "17"},
        {"from": f"time:{began_ms + 17}", "until": began_ms + 18},
        {"from": "offset:5", "partition": 2, "limit": 1},
    ):
        rows = browser.get(path, **params)["rows"]
        assert [json.loads(row["value"]["text"])["n"] for row in rows] == [17], params
    one = browser.post(f"/topics/{topic}/records", {"value": {"text": "x"}, "partition": 0})
    batch = browser.get(f"{path}/0/{one['offset']}")["batch"]
    assert batch["words"].startswith("1 record; ") and "again, it is stored once" in batch["words"]
    (row,) = browser.get(path, key="k17")["rows"]
    detail = browser.get(f"{path}/{row['partition']}/{row['offset']}")
    assert json.loads(detail["value"]["pretty"]) == {"n": 17, "deep": {"list": [17]}}
    assert detail["batch"]["producer_id"] is not None and detail["batch"]["crc_ok"]
    raw = browser.ask(f"{path}/{row['partition']}/{row['offset']}/raw", part="key")
    assert raw.content == b"k17" and "attachment" in raw.headers["content-disposition"]


def test_hostile_messages_are_cut_and_marked_and_never_break_the_answer(browser, topic, cluster):
    values = [
        HTML.encode(),
        b"\xff\xfe" * 100,
        b"[" * 100_000,
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b"\x00" * 50,
        json.dumps({"big": 2**60, "t": HTML}).encode(),
        ("\u202e" + "x" * 900_000).encode(),
    ]
    producing = {"bootstrap.servers": cluster.bootstrap_servers, "max.request.size": 1_000_000}
    with Producer(producing) as producer:
        for value in values:
            producer.send(topic, value, b"\xff", headers=[(HTML, b"\xfe")], partition=0)
    answer = browser.ask(f"/topics/{topic}/messages", partition=0)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    shown = [row["value"] for row in reversed(answer.json()["rows"])]
    kinds = [value["kind"] for value in shown]
    assert kinds == ["text", "binary", "text", "text", "json", "binary", "json", "text"]
    assert shown[1]["invalid_utf8"] and shown[1]["text"].startswith("ff fe")
    assert shown[2]["cut"] and len(shown[2]["text"]) == 2_048 and shown[2]["bytes"] == 100_000
    assert shown[7]["cut"] and shown[7]["bytes"] == 900_003
    detail = browser.get(f"/topics/{topic}/messages/0/2")
    assert detail["value"]["kind"] == "text", "100,000 levels are not for JSON.parse"
    assert len(answer.content) < 30_000


def test_rows_of_a_topic_with_a_schema_are_tables(browser) -> None:
    name = f"typed-{uuid.uuid4().hex[:8]}"
    ddl = "id BIGINT NOT NULL, fare DOUBLE, city STRING"
    made = browser.post("/topics", {"name": name, "partitions": 2, "schema": ddl, "key": ["id"]})
    assert made["schema"]["key"] == ["id"]
    for number in range(6):
        row = {"id": 2**60 + number, "fare": number * 1.5, "city": "x" * 400}
        browser.post(f"/topics/{name}/records", {"value": {"text": json.dumps(row)}})
    refused = browser.change("POST", f"/topics/{name}/records", {"value": {"text": '{"i": 1}'}})
    assert refused.status_code == 400 and "not in the topic's schema" in refused.text
    found = browser.get(f"/topics/{name}/messages")
    assert [column["type"] for column in found["columns"]] == ["BIGINT", "DOUBLE", "STRING"]
    first = found["rows"][0]
    assert first["row"][0] == str(2**60 + 5), "more than JavaScript's numbers keep"
    assert first["row_cut"] == [2]
    some = browser.get(f"/topics/{name}/messages", columns="fare", where="fare > 6")
    assert [row["row"] for row in some["rows"]] == [[7.5]]
    (batch, *_) = browser.get(f"/topics/{name}/batches", partition=0)["rows"]
    assert batch["typed"] and "in columns" in batch["words"]


def test_batches_are_explained_and_markers_are_shown_as_such(browser, topic, cluster) -> None:
    producing = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": "zstd"}
    with Producer({**producing, "transactional.id": topic}) as producer:
        producer.init_transactions()
        for commits in (True, False):
            producer.begin_transaction()
            for _ in range(10):
                producer.send(topic, b"a" * 100, partition=0)
            producer.flush()
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    rows = within(
        SOON_S,
        lambda: (
            found
            if len(found := browser.get(f"/topics/{topic}/batches", partition=0)["rows"]) == 4
            else None
        ),
        "both markers",
    )
    assert [row["control"] for row in rows] == [None, "commit", None, "abort"]
    assert rows[0]["codec"] == "zstd" and rows[0]["transactional"]
    assert rows[0]["uncompressed_bytes"] > 1_000 > rows[0]["size_bytes"]
    assert "is aborted" in rows[3]["words"]
    committed = browser.get(f"/topics/{topic}/messages")
    assert len(committed["rows"]) == 10
    everything = browser.get(f"/topics/{topic}/messages", isolation="read_uncommitted")
    assert len(everything["rows"]) == 20


def test_new_messages_follow_live_and_a_search_ends_when_its_page_leaves(
    browser, topic, producer
) -> None:
    before = threading.active_count()
    events = browser.events(f"/topics/{topic}/messages/stream", tail=1)
    seen = []

    def send() -> None:
        producer.send(topic, b"live", partition=1)
        producer.flush()

    timer = threading.Timer(1.0, send)
    for kind, document in events:
        if timer.ident is None:
            # The search has begun: what is sent from now on is new.
            timer.start()
        if kind == "rows":
            seen += document["rows"]
            break
    events.close()
    timer.join()
    assert [row["value"]["text"] for row in seen] == ["live"]
    within(SOON_S, lambda: threading.active_count() <= before + 3, "the search has ended")
    assert browser.get(f"/topics/{topic}/messages")["rows"]


def test_offsets_are_set_as_they_were_shown_or_not_at_all(browser, topic, producer, cluster):
    for number in range(30):
        producer.send(topic, b"x", partition=number % 3)
    producer.flush()
    group = f"{topic}/readers"
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
    # A name may have slashes, and a path may not.
    path, named = "/groups/~/reset", {"group": group}
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        read = 0
        while read < 30:
            read += len(consumer.poll(1_000))
        consumer.commit()
        (row,) = browser.get("/groups", filter=group)["rows"]
        assert (row["members"], row["lag"]) == (1, 0)
        busy = browser.change("POST", f"{path}/preview?group={group}", {"to": "earliest"})
        assert busy.status_code == 409 and "has 1 members" in busy.text
    shown = browser.post(f"{path}/preview?group={group}", {"to": {"shift_by": -4}})
    assert [row["change"] for row in shown["rows"]] == [-4] * 3
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1})
    apply = {"preview_id": shown["preview_id"], "confirm": group}
    late = browser.change("POST", f"{path}/apply?group={group}", apply)
    assert late.status_code == 409 and "have changed since the preview" in late.text
    assert browser.change("POST", f"{path}/apply?group={group}", apply).status_code == 409, (
        "used once"
    )
    again = browser.post(f"{path}/preview?group={group}", {"to": "earliest"})
    browser.post(
        f"{path}/apply?group={group}", {"preview_id": again["preview_id"], "confirm": group}
    )
    described = browser.get("/groups/~", **named)
    assert (described["state"], described["lag"]) == ("Empty", 30)
    assert all(row["lag_ms"] is not None for row in described["partitions"])


def test_what_a_committed_reader_waits_for_is_told_with_its_query(browser, topic, cluster) -> None:
    sink, query = f"sink-{topic}", str(uuid.uuid4())
    with Cluster(cluster.bootstrap_servers) as client:
        batches = MicroBatches(client, sink, query)
        member = batches.join(7)
        (batch,) = encode_batches(pa.array([b"row"], pa.binary()))
        with BatchWriter(client, transaction=member) as writer:
            writer.append(TopicPartition(topic, 0), batch)
            writer.flush()
        (row,) = within(
            SOON_S, lambda: browser.get(f"/topics/{topic}/waiting")["rows"], "the open transaction"
        )
        assert row["sink"] == {"sink": sink, "query": query, "batch": 7}
        assert (row["stable_offset"], row["waiting"]) == (0, 1)
        assert f"Micro-batch 7 of query {query}" in row["words"]
        (state,) = browser.get("/sinks", filter=sink)["rows"]
        assert state["last_batch"] is None and state["open_members_total"] == 1
        assert state["open_members"][0]["partitions"] == [{"topic": topic, "partition": 0}]
        batches.commit(7, [member.id])
        (state,) = browser.get("/sinks", filter=sink)["rows"]
        assert (state["last_batch"], state["open_members"]) == (7, [])
    within(SOON_S, lambda: not browser.get(f"/topics/{topic}/waiting")["rows"], "its end")


def test_dead_letters_are_shown_and_go_back_as_shown(browser, topic, producer) -> None:
    dead = f"{topic}-dead"
    browser.post("/topics", {"name": dead, "partitions": 1, "replication_factor": 3})

    def send(number: int) -> None:
        headers = [
            (TOPIC, topic.encode()),
            (PARTITION, b"1"),
            (OFFSET, b"%d" % number),
            (REASON, f"wrong {HTML}".encode()),
        ]
        producer.send(dead, b"letter %d" % number, headers=headers)
        producer.flush()

    for number in range(4):
        send(number)
    (listed,) = within(
        SOON_S, lambda: browser.get("/dead-letters", filter=dead)["rows"], "the topic"
    )
    assert listed["topic"] == dead
    row = browser.get(f"/topics/{dead}/messages")["rows"][0]
    assert row["dead_letter"]["topic"] == topic and row["dead_letter"]["offset"] == 3
    path = f"/dead-letters/{dead}"
    shown = browser.post(f"{path}/preview", {"reason": "wrong"})
    assert (shown["waiting"], shown["selected"]) == (4, 4)
    assert shown["kinds"] == [{"topic": topic, "reason": f"wrong {HTML}", "count": 4}]
    send(4)
    begun = browser.post(f"{path}/replay", {"preview_id": shown["preview_id"], "confirm": dead})
    run = within(
        SOON_S,
        lambda: (
            found
            if (found := browser.get(f"/replays/{begun['replay_id']}"))["state"] != "running"
            else None
        ),
        "the replay",
    )
    assert (run["state"], run["sent"]) == ("done", 4), run
    assert browser.get(f"{path}/replays")["rows"] == [run]
    assert browser.ask(f"/dead-letters/{topic}-none/replays").status_code == 404
    back = browser.get(f"/topics/{topic}/messages")["rows"]
    assert sorted(row["value"]["text"] for row in back) == [f"letter {n}" for n in range(4)]
    assert browser.post(f"{path}/preview", {})["waiting"] == 1
