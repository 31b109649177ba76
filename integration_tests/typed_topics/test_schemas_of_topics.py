"""Schemas are made, changed and shown by the command and by clients, and outlive kills of brokers
and of the controller."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic as ForeignTopic

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    make_whole,
    running_cluster,
    wait_until,
)
from integration_tests.support.command_line import fail_here, succeed_here
from integration_tests.support.settings_support import describe
from storage_engine.client import Admin, AsyncAdmin, NewTopic
from storage_engine.client.cluster import Cluster
from storage_engine.client.topic_schemas import TopicSchemas
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING
from storage_engine.tools.cli import main
from storage_engine.tools.local.local_cluster import LocalCluster

BROKERS = (1, 2, 3)
SOON_S = 5.0
"""Within a second all brokers know a new version, and a busy machine has five times as long."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def client(cluster) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as made:
        yield made


def topics(cluster, *arguments):
    return ("topics", *arguments, "--bootstrap-server", cluster.bootstrap_servers)


def shown(cluster, capsys, *arguments) -> str:
    assert main([*topics(cluster, "describe", *arguments)]) == 0
    return capsys.readouterr().out


def versions_told(cluster, topic) -> list[int]:
    """How many versions each live broker tells."""
    with Cluster(cluster.bootstrap_servers) as asked:
        asked.refresh([topic])
        schemas = TopicSchemas(asked)
        found = [schemas.ask_broker(broker, topic) for broker in sorted(asked.view.brokers)]
    return [0 if known is None else len(known.schema.versions) for known in found]


def test_the_command_makes_shows_and_changes_a_typed_topic(cluster, capsys, tmp_path):
    ddl = "id BIGINT, at TIMESTAMP, fare FLOAT, who STRUCT<name: STRING NOT NULL>"
    succeed_here(*topics(cluster, "create", "trips", "--schema", ddl, "--key", "id"))
    lines = shown(cluster, capsys, "trips").splitlines()
    assert "settings of its own: none" in lines
    start = lines.index("schema: version 1, key id")
    assert [line.split() for line in lines[start + 1 : start + 6]] == [
        ["ID", "COLUMN", "TYPE", "NULLABLE", "KEY", "HIDDEN", "SINCE", "VERSION"],
        ["1", "id", "BIGINT", "no", "yes", "no", "1"],
        ["2", "at", "TIMESTAMP", "yes", "no", "no", "1"],
        ["3", "fare", "FLOAT", "yes", "no", "no", "1"],
        ["4", "who", "STRUCT<name:", "STRING", "NOT", "NULL>", "yes", "no", "no", "1"],
    ]

    wanted = {
        "type": "record",
        "name": "Trip",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "fare", "type": ["null", "double"]},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
    file = tmp_path / "trip.avsc"
    file.write_text(json.dumps(wanted))
    succeed_here(*topics(cluster, "alter", "trips", "--schema", file))
    wait_until(
        lambda: versions_told(cluster, "trips") == [2, 2, 2], "all know it", timeout_s=SOON_S
    )
    schema = json.loads(shown(cluster, capsys, "trips", "--json"))[0]["schema"]
    rows = [
        (
            column["id"],
            column["name"],
            column["type"],
            column["nullable"],
            column["key"],
            column["hidden"],
            column["since_version"],
        )
        for column in schema["columns"]
    ]
    assert (schema["version"], schema["key"]) == (2, ["id"])
    assert rows == [
        (1, "id", "BIGINT", False, True, False, 1),
        (2, "at", "TIMESTAMP", True, False, True, 1),
        (3, "fare", "DOUBLE", True, False, False, 1),
        (4, "who", "STRUCT<name: STRING NOT NULL>", True, False, True, 1),
        (5, "note", "STRING", True, False, False, 2),
    ]


def test_mistakes_are_told_in_one_line(cluster, client, capsys, tmp_path):
    client.create_topics([NewTopic(name="orders")], schema="id BIGINT, n INT", key=["id"])
    create_topic(cluster, "plain")
    text = tmp_path / "text"
    text.write_bytes(b"\xff")

    def refusal(*arguments, status=1):
        return fail_here(capsys, *topics(cluster, *arguments), status=status)

    assert "'FOO': no type has that name" in refusal("create", "x", "--schema", "a FOO")
    assert "there is no column 'nope'" in refusal(
        "create", "x", "--schema", "a INT", "--key", "nope"
    )
    assert "needs a key" in refusal(
        "create", "x", "--schema", "a INT", "--config", "cleanup.policy=compact"
    )
    assert refusal("create", "x", "--key", "a", status=2).startswith("--key names columns")
    assert "there is no such file" in refusal("create", "x", "--schema", "no.avsc", status=2)
    assert "is no text in UTF-8" in refusal("create", "x", "--schema", text, status=2)
    assert "is given twice" in refusal(
        "create", "x", "--schema", "a INT", "--config", f"{SCHEMA_SETTING}=1"
    )
    assert "can't change from INT to STRING" in refusal(
        "alter", "orders", "--schema", "id BIGINT, n STRING"
    )
    assert "is not typed, and can't become so" in refusal("alter", "plain", "--schema", "a INT")
    assert "can't be removed" in refusal("alter", "orders", "--remove-config", SCHEMA_SETTING)
    assert "x" not in client.list_topics()
    assert versions_told(cluster, "orders") == [1, 1, 1]
    assert client.describe_schemas(["plain"]) == {"plain": None}
    with pytest.raises(ConfigError, match="a key is given without a schema"):
        client.create_topics([NewTopic(name="x")], key=["id"])
    with pytest.raises(KafkaError) as caught:
        client.describe_schemas(["nothing-of-that-name"])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_other_clients_see_and_set_the_schema_as_a_setting(cluster, client):
    foreign = admin(cluster)
    client.create_topics([NewTopic(name="mine", partitions=2)], schema="id BIGINT", key=["id"])
    text = describe(foreign, "topic", "mine")[SCHEMA_SETTING].value
    new = ForeignTopic("theirs", 1, 3, config={SCHEMA_SETTING: text})
    foreign.create_topics([new])["theirs"].result(30)
    assert client.describe_schemas(["theirs"])["theirs"].schema.to_json() == text
    create_topic(cluster, "untyped")
    assert SCHEMA_SETTING not in describe(foreign, "topic", "untyped")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"format":1,"key":[],"versions":[{"version":1,"columns":[' + "9" * 200_000 + "]}]}",
        '{"format":1,"key":[],"versions":[{"version":1,"columns":[{"id":1,"name":"a","type":"'
        + "ARRAY<" * 40_000
        + '"}]}]}',
        "x" * 500_000,
    ],
    ids=["deep", "number", "type", "long"],
)
def test_a_hostile_schema_is_refused_and_harms_nobody(cluster, client, text):
    started = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        client.create_topics([NewTopic(name="hostile", configs={SCHEMA_SETTING: text})])
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert len(str(caught.value)) < 1000
    assert time.monotonic() - started < 20
    assert len(client.describe_cluster().brokers) == len(BROKERS)
    assert "hostile" not in client.list_topics()


def test_versions_that_several_append_at_once_are_all_there(cluster, client):
    client.create_topics([NewTopic(name="shared")], schema="id BIGINT")
    errors: list[BaseException] = []

    def append(number: int) -> None:
        try:
            with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as own:
                _append(own, f"c{number} BIGINT")
        except BaseException as error:  # noqa: BLE001 - it is told by the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    schema = client.describe_schemas(["shared"])["shared"].schema
    assert len(schema.versions) == 4
    assert {column.name for column in schema.latest.visible} == {"id", "c0", "c1", "c2"}


def _append(own: Admin, column: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        latest = own.describe_schemas(["shared"])["shared"].schema.latest
        columns = ", ".join(f"{known.name} BIGINT" for known in latest.visible)
        try:
            own.alter_schema("shared", f"{columns}, {column}", based_on=latest.version)
            return
        except KafkaError as error:
            assert "somebody else has changed the schema" in str(error)
            assert time.monotonic() < deadline


def test_the_client_for_asyncio_has_the_same_calls(cluster):
    async def calls() -> None:
        async with AsyncAdmin({"bootstrap.servers": cluster.bootstrap_servers}) as own:
            await own.create_topics([NewTopic(name="async")], schema="id BIGINT")
            changed = await own.alter_schema("async", "id BIGINT, more STRING")
            known = await own.describe_schemas(["async"])
            assert known["async"].schema == changed

    asyncio.run(calls())


def test_a_schema_outlives_the_controller_and_the_kill_of_all_brokers(cluster, client):
    client.create_topics([NewTopic(name="lasting", partitions=3)], schema="id BIGINT", key=["id"])
    controller = client.describe_cluster().controller_id
    cluster.kill_broker(controller)
    second = client.alter_schema("lasting", "id BIGINT, fare FLOAT")
    assert len(second.versions) == 2
    cluster.start_broker(controller)
    wait_until(lambda: versions_told(cluster, "lasting") == [2, 2, 2], "all brokers are back")
    third = client.alter_schema("lasting", "id BIGINT, fare DOUBLE")
    wait_until(
        lambda: versions_told(cluster, "lasting") == [3, 3, 3], "all know it", timeout_s=SOON_S
    )
    before = client.describe_schemas(["lasting"])["lasting"]
    for broker in BROKERS:
        cluster.kill_broker(broker)
    make_whole(cluster)
    wait_until(lambda: versions_told(cluster, "lasting") == [3, 3, 3], "all brokers are back")
    assert client.describe_schemas(["lasting"])["lasting"] == before
    assert before.schema == third
