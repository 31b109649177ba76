"""Logs of typed topics as operations change them: retention, DeleteRecords, other replicas, damage.
Rows are read by confluent-kafka, as JSON; replicas are compared byte by byte."""

import json

import pyarrow as pa
from confluent_kafka import KafkaException

from integration_tests.command_line.mirrored import committed_records
from integration_tests.support.cluster_support import wait_until
from storage_engine.client import EARLIEST, Admin, Producer
from storage_engine.client.admin.topics import NewTopic
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import HEADER_BYTES, iter_headers
from storage_engine.protocol.typed.typed_batch import directory_of
from storage_engine.tools.cli import main

ROWS = 40
"""Of a batch."""
BATCHES = 60


def write_rows(servers: str, topic: str, first_batch: int = 0) -> None:
    with Producer({"bootstrap.servers": servers, "acks": "all"}) as producer:
        for batch in range(first_batch, first_batch + BATCHES):
            ids = list(range(batch * ROWS, (batch + 1) * ROWS))
            table = pa.table({"id": pa.array(ids), "name": [f"name {number}" for number in ids]})
            producer.send_table(topic, table).result(60)


def create(admin: Admin, topic: str, brokers: list[int], **configs: str) -> None:
    new = NewTopic(name=topic, assignment={0: brokers}, configs=configs)
    admin.create_topics([new], schema="id BIGINT NOT NULL, name STRING", key=["id"])


def ids_of(servers: str, topic: str) -> list[int]:
    """By offset: each row's id is its offset."""
    found = committed_records(servers, topic, 0)
    ids = [json.loads(seen.value or b"")["id"] for _, seen in found]
    assert ids == [offset for offset, _ in found]
    return ids


def can_read(servers: str, topic: str) -> bool:
    try:
        return bool(ids_of(servers, topic))
    except KafkaException:
        # Its only broker is away.
        return False


def all_equal(servers: str, topic: str, capsys) -> bool:
    capsys.readouterr()
    asked = ["verify-replicas", "--bootstrap-server", servers, "--topics", topic, "--json"]
    status = main(asked)
    document = json.loads(capsys.readouterr().out)
    assert status == 0, document
    (partition,) = document["partitions"]
    return all(replica["lag"] == 0 for replica in partition["replicas"])


def test_typed_topics_are_shortened_and_moved_like_others(cluster, tmp_path, capsys):
    servers, topic = cluster.bootstrap_servers, "typed-kept"
    tp = TopicPartition(topic, 0)
    configs = {"segment.bytes": "16384", "min.insync.replicas": "1"}
    with Admin({"bootstrap.servers": servers}) as admin:
        create(admin, topic, [1, 2], **configs)
        write_rows(servers, topic)
        assert ids_of(servers, topic) == list(range(BATCHES * ROWS))

        # The start lies within a batch.
        assert admin.delete_records({tp: ROWS + 7}) == {tp: ROWS + 7}
        assert ids_of(servers, topic) == list(range(ROWS + 7, BATCHES * ROWS))
        # The follower's high watermark follows the leader's a moment later.
        wait_until(lambda: all_equal(servers, topic, capsys), "replicas are equal")

        admin.alter_topic_configs(topic, {"retention.bytes": "50000"})

        def start() -> int:
            return admin.list_offsets({tp: EARLIEST})[tp] or 0

        wait_until(lambda: start() > 5 * ROWS, "old segments are deleted")
        kept = ids_of(servers, topic)
        assert kept == list(range(kept[0], BATCHES * ROWS))
        admin.alter_topic_configs(topic, {}, remove=["retention.bytes"])

        assert admin.alter_reassignments({tp: [3]}) == {}
        wait_until(lambda: not admin.list_reassignments(), "broker 3 has the topic alone")
        write_rows(servers, topic, BATCHES)
        cluster.kill_broker(3)
        cluster.start_broker(3)
        wait_until(lambda: can_read(servers, topic), "broker 3 is back")
        known = admin.describe_schemas([topic])[topic]
    moved = ids_of(servers, topic)
    assert moved == list(range(kept[0], 2 * BATCHES * ROWS))
    schema = tmp_path / "schema.json"
    schema.write_text(known.schema.to_json())
    folder = cluster.directory / "broker-3" / "data" / f"{topic}-0"
    segments = sorted(folder.glob("*.log"))
    capsys.readouterr()
    assert main(["dump-log", "--deep", "--json", "--schema", str(schema), *map(str, segments)]) == 0
    told = json.loads(capsys.readouterr().out)
    records = [r for each in told for batch in each["batches"] for r in batch.get("records", ())]
    assert [r["offset"] for r in records if r["offset"] >= moved[0]] == moved
    assert main(["dump-log", "--verify-index", *map(str, segments)]) == 0


def test_the_tools_name_the_column_that_is_damaged(cluster, capsys):
    servers, topic = cluster.bootstrap_servers, "typed-damaged"
    with Admin({"bootstrap.servers": servers}) as admin:
        create(admin, topic, [1, 2, 3])
    write_rows(servers, topic)
    wait_until(lambda: all_equal(servers, topic, capsys), "all replicas are equal")
    folder = cluster.directory / "broker-2" / "data" / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    with segment.open("r+b") as file:
        data = bytearray(file.read())
        position, header = list(iter_headers(data))[3]
        directory = directory_of(header, data[position:])
        place = directory.entries[1].place
        file.seek(position + HEADER_BYTES + directory.size + place + 3)
        file.write(bytes((data[file.tell()] ^ 1,)))
    named = f"column {directory.entries[1].column_id} is damaged"
    assert main(["dump-log", str(segment)]) == 1
    assert f"CRC does not match: {named}" in capsys.readouterr().err
    assert main(["verify-replicas", "--bootstrap-server", servers, "--topics", topic]) == 1
    assert f"its CRC does not match its contents: {named}" in capsys.readouterr().out
