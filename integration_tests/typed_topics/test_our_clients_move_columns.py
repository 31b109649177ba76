"""Our producer, consumer and commands on typed topics, with real brokers: rows are there once and
in order though a leader is killed, and what a transaction or a filter leaves out leaves no gap.
"""

import json

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from integration_tests.support.background import Background
from integration_tests.support.cluster_support import admin, leader_of, wait_for_isr, wait_until
from integration_tests.support.command_line import fail, fail_here, succeed
from storage_engine.client import (
    Admin,
    BulkReader,
    Consumer,
    NewTopic,
    Producer,
    SerializationError,
    TopicPartition,
)
from storage_engine.client.producer.partition_choice import partition_for_key
from storage_engine.tools.cli import main

SCHEMA = "id BIGINT NOT NULL, kind INT, fare DOUBLE, tags ARRAY<STRING>"
TABLE_ROWS = 500
KINDS = 4
"""Each table has one kind, so that a filter by it skips whole batches."""


@pytest.fixture(scope="module")
def servers(cluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def create(servers, name, *, partitions=2, key=(), **configs) -> None:
    with Admin(servers) as client:
        topic = NewTopic(name=name, partitions=partitions, replication_factor=3, configs=configs)
        client.create_topics([topic], schema=SCHEMA, key=key)


def rows(number, **more) -> pa.Table:
    """Table `number`: ids go on from table to table."""
    ids = range(number * TABLE_ROWS, (number + 1) * TABLE_ROWS)
    return pa.table(
        {
            "id": ids,
            "kind": pa.array([number % KINDS] * TABLE_ROWS, pa.int8()),
            "fare": [n / 8 for n in ids],
            "tags": pa.array([None if n % 3 else [str(n)] for n in ids], pa.list_(pa.string())),
            **more,
        }
    )


def read_all(servers, topic, *, isolation="read_committed", **selection) -> pa.Table:
    with BulkReader({**servers, "isolation.level": isolation}) as reader:
        splits = reader.splits([topic])
        schema = reader.arrow_schema(splits[0], **selection)
        batches = [batch for split in splits for batch in reader.read(split, **selection)]
    return pa.Table.from_batches(batches, schema)


class FilteringConsumer(Background):
    """Reads a projection of the rows of one kind while the cluster changes."""

    def __init__(self, servers, topic, kind) -> None:
        super().__init__()
        self._config = {**servers, "auto.offset.reset": "earliest", "fetch.max.wait.ms": 100}
        self._topic = topic
        self._kind = kind
        self.found: list[tuple[int, int, int]] = []
        """(partition, offset, id)"""

    def _work(self) -> None:
        with Consumer(self._config) as consumer:
            consumer.assign(consumer.partitions_of(self._topic))
            while True:
                table = consumer.poll_table(
                    500, columns=["_partition", "_offset", "id"], where=f"kind = {self._kind}"
                )
                self.found += zip(*(column.to_pylist() for column in table.columns), strict=True)
                if not table.num_rows and self._stop.is_set():
                    return


def test_a_killed_leader_loses_doubles_and_reorders_no_row_of_producer_and_filtering_reader(
    cluster, servers
):
    topic = "columns-through-a-kill"
    create(servers, topic, **{"min.insync.replicas": "2"})
    victim = leader_of(admin(cluster), topic)
    tables = 60
    with FilteringConsumer(servers, topic, 1) as reader:
        with Producer({**servers, "compression.type": "lz4"}) as producer:
            futures = []
            for number in range(tables):
                futures.append(
                    producer.send_table(topic, rows(number, _partition=[number % 2] * TABLE_ROWS))
                )
                if number == 10:
                    wait_until(lambda: reader.found, "rows are read before the kill")
                if number == 20:
                    cluster.kill_broker(victim)
            producer.flush()
            assert sum(future.result().rows for future in futures) == tables * TABLE_ROWS
        expected = [n for t in range(1, tables, KINDS) for n in rows(t)["id"].to_pylist()]
        wait_until(lambda: len(reader.found) >= len(expected), "the reader has all rows")
        assert cluster.start_broker(victim)
    wait_for_isr(admin(cluster), topic, 3)
    assert [number for _, _, number in reader.found] == expected
    offsets = [offset for _, offset, _ in reader.found]
    assert offsets == sorted(set(offsets))
    everything = read_all(servers, topic, columns=["_partition", "_offset", "id", "fare"])
    for partition in (0, 1):
        mine = everything.filter(pa.compute.equal(everything["_partition"], partition))
        ids = [n for t in range(partition, tables, 2) for n in rows(t)["id"].to_pylist()]
        assert mine["id"].to_pylist() == ids
        assert mine["fare"].to_pylist() == [n / 8 for n in ids]
        assert mine["_offset"].to_pylist() == list(range(len(ids)))


def test_aborted_rows_are_left_out_of_projections_and_filters_and_committed_ones_are_not(servers):
    topic = "columns-in-transactions"
    create(servers, topic, partitions=1, **{"max.message.bytes": "9000"})
    with Producer({**servers, "transactional.id": "columns"}) as producer:
        producer.init_transactions()
        for number in range(8):
            producer.begin_transaction()
            producer.send_table(topic, rows(number))
            if number % 3 == 1:
                # Before they end, rows of aborted transactions reach the brokers.
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    committed = [number for number in range(8) if number % 3 != 1]
    table = read_all(servers, topic)
    assert table.equals(pa.concat_tables([rows(n).cast(table.schema) for n in committed]))
    for kind in range(KINDS):
        mine = [n for t in committed if t % KINDS == kind for n in rows(t)["id"].to_pylist()]
        found = read_all(servers, topic, columns=["id"], where=f"kind = {kind}")
        assert found["id"].to_pylist() == mine
        with Consumer({**servers, "isolation.level": "read_committed"}) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_beginning()
            polled: list[int] = []
            while len(polled) < len(mine):
                polled += consumer.poll_table(columns=["id"], where=f"kind = {kind}")[
                    "id"
                ].to_pylist()
            assert polled == mine
            (end,) = consumer.end_offsets(consumer.assignment).values()
            wait_until(
                lambda consumer=consumer, kind=kind, end=end: (
                    consumer.poll_table(100, columns=["id"], where=f"kind = {kind}").num_rows == 0
                    and consumer.position(TopicPartition(topic, 0)) == end
                ),
                "the consumer stands behind the last marker",
            )
    uncommitted = read_all(servers, topic, isolation="read_uncommitted", columns=["id"])
    assert uncommitted.num_rows == 8 * TABLE_ROWS


def test_reader_and_writer_go_on_when_columns_are_added_hidden_and_widened(servers):
    topic = "columns-that-change"
    create(servers, topic, partitions=1)
    wider = "id BIGINT NOT NULL, kind BIGINT, tags ARRAY<STRING>, note STRING"
    with Producer(servers) as producer, Consumer(servers) as consumer, Admin(servers) as client:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        producer.send_table(topic, rows(0))
        before = polled(consumer, TABLE_ROWS)
        assert before.column_names == ["id", "kind", "fare", "tags"]
        with pytest.raises(SerializationError, match="no column 'note'"):
            producer.send_table(topic, pa.table({"id": [1], "note": ["early"]}))
        client.alter_schema(topic, wider)
        # Of what the producer knew, a table that fits it is sent by it still.
        producer.send_table(topic, rows(1))
        producer.send_table(topic, pa.table({"id": [-1], "kind": [1 << 40], "note": ["late"]}))
        producer.flush()
        found = []
        while -1 not in found:
            after = consumer.poll_table()
            found += after["id"].to_pylist()
        assert found == [*rows(1)["id"].to_pylist(), -1]
        assert after.to_pylist()[-1] == {"id": -1, "kind": 1 << 40, "tags": None, "note": "late"}
        consumer.seek_to_beginning()
        hidden = polled(consumer, 2, columns=["id", "fare"], where="fare < 0.25 AND kind = 0")
        assert hidden.to_pylist() == [{"id": 0, "fare": 0.0}, {"id": 1, "fare": 0.125}]
        with pytest.raises(SerializationError, match="'fare' is hidden"):
            producer.send_table(topic, rows(1))


def polled(consumer, count, **selection) -> pa.Table:
    """So many rows, as one table."""
    tables: list[pa.Table] = []
    while sum(table.num_rows for table in tables) < count:
        table = consumer.poll_table(**selection)
        if table.num_rows:
            tables.append(table)
    return pa.concat_tables(tables)


def test_rows_come_as_json_records_and_as_columns_by_turns(servers):
    topic = "columns-and-records"
    create(servers, topic, partitions=1, key=["id"])
    with Producer(servers) as producer:
        producer.send_table(topic, rows(0)).result()
        producer.send(topic, json.dumps({"id": 500, "kind": 9}), key="500").result()
        producer.send_table(topic, pa.table({"id": [7], "_deleted": [True]})).result()
    with Consumer(servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        (first, second) = consumer.poll(5000, 2)
        assert (first.key, json.loads(first.value or b"")) == (
            b"0",
            {"id": 0, "kind": 0, "fare": 0.0, "tags": ["0"]},
        )
        assert second.offset == 1
        table = polled(consumer, 499)
        assert table["id"].to_pylist() == list(range(2, 501))
        consumer.seek(TopicPartition(topic, 0), 500)
        records = [next(consumer), next(consumer)]
        assert [(record.key, record.value) for record in records] == [
            (b"500", b'{"id":500,"kind":9,"fare":null,"tags":null}'),
            (b"7", None),
        ]
        consumer.seek(TopicPartition(topic, 0), 499)
        table = polled(consumer, 3, columns=["id", "_deleted", "_offset"])
        assert table.to_pylist()[-1] == {"id": 7, "_deleted": True, "_offset": 501}


def test_the_commands_print_take_and_export_columns(servers, tmp_path, capsys):
    topic = "columns-by-command"
    create(servers, topic, partitions=3, key=["id"])
    server = ("--bootstrap-server", servers["bootstrap.servers"])
    lines = [json.dumps({"id": n, "fare": n / 4}) for n in range(200)]
    succeed("produce", topic, *server, stdin="\n".join(lines).encode())
    where = ("--columns", "id,_partition", "--where", "fare >= 40 AND fare < 40.75")
    output = shown(capsys, "consume", topic, *server, *where, "--exit-at-end")
    assert sorted(map(json.loads, output.splitlines()), key=lambda row: row["id"]) == [
        {"id": n, "_partition": partition_for_key(b"%d" % n, 3)} for n in (160, 161, 162)
    ]
    output = shown(capsys, "consume", topic, *server, "--max", "200")
    assert sorted(json.loads(line)["id"] for line in output.splitlines()) == list(range(200))
    export = ("export", topic, *server, "--dir", str(tmp_path / "out"))
    shown(capsys, *export, *where)
    assert "3 of them kept" in shown(capsys, *export, *where)
    found = ds.dataset(tmp_path / "out", format="parquet").to_table()
    assert found.schema.equals(pa.schema([("id", pa.int64()), ("_partition", pa.int32())]))
    assert sorted(found["id"].to_pylist()) == [160, 161, 162]
    wrong = "line 2 of the input: the column 'fare' of type DOUBLE can't hold \"x\""
    assert wrong in fail("produce", topic, *server, stdin=b'{"id": 1}\n{"id": 2, "fare": "x"}')
    for status, arguments, complaint in (
        (1, ("consume", topic, *server, "--columns", "fares"), "did you mean 'fare'?"),
        (1, ("consume", topic, *server, "--where", "fare LIKE 1"), "the condition"),
        (2, ("consume", topic, *server, "--columns", "id", "--json"), "leave out --json"),
        (1, (*export, "--columns", "id"), "has another export"),
    ):
        assert complaint in fail_here(capsys, *arguments, status=status)


def shown(capsys, *arguments) -> str:
    """The output of a command, run within this process."""
    assert main([*arguments]) == 0
    return str(capsys.readouterr().out)
