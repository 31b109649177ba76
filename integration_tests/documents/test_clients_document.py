"""The code of docs/clients.md and of docs/typed-topics.md runs as it stands there."""

import subprocess
import sys
import time

import pytest
from confluent_kafka import Producer

from integration_tests.documents.blocks import TYPED_CONFIG, blocks, script_of
from integration_tests.support.background import Background
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster

PRELUDE = """
import pyarrow as pa
from storage_engine.client import BulkReader, Consumer, Producer
servers, password = "SERVERS", "secret"
typed = {"bootstrap.servers": servers, "group.id": "billing-typed", "auto.offset.reset": "earliest"}
"""
TYPED = """
producer, consumer = Producer({"bootstrap.servers": servers}), Consumer(typed)
producer.send_table("trips", pa.table({"id": [1], "fare": [12.0]}))
producer.flush()
consumer.subscribe(["trips"])
reader = BulkReader({"bootstrap.servers": servers})
split = next(iter(reader.splits(["trips"])))
"""
AFTER_TYPED = """
print("typed", table.column_names)
for each in (producer, consumer, reader):
    each.close()
"""


class Clicks(Background):
    """Others click all the while: a reader that begins at the end finds something."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": servers})
        self._topic = topic

    def _work(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(self._topic, b"/elsewhere")
            self._producer.flush(30)
            time.sleep(0.02)


def test_the_code_for_clients_runs(cluster, topic, tmp_path):
    servers = cluster.bootstrap_servers
    produce, consume, streams, admin, bulk, typed, figures, asynchronous, tls = blocks(
        "docs/clients.md", "python"
    )
    parts = [
        PRELUDE,
        script_of(produce),
        script_of(consume, endless=True),
        script_of(streams, endless=True),
        # The topic is there already.
        script_of(admin).replace("name='clicks'", "name='clicks-too'"),
        script_of(bulk),
        TYPED,
        script_of(typed),
        *map(script_of, blocks("docs/typed-topics.md", "python")[1:2]),
        AFTER_TYPED,
        script_of(figures),
        script_of(asynchronous, endless=True),
        script_of(tls),
    ]
    script = "\n".join(f"{part}\nprint('block {number}')" for number, part in enumerate(parts))
    for written, own in (
        ("127.0.0.1:9092", servers),
        ("SERVERS", servers),
        ("127.0.0.1:2181", cluster.state.zookeeper),
        ("clicks", topic),
        ("trips", f"{topic}-trips"),
        ("billing", f"{topic}-billing"),
        ("'seen'", f"'{topic}-seen'"),
    ):
        script = script.replace(written, own)
    (tmp_path / "script.py").write_text(script)
    with Cluster(servers) as made:
        create_topic(made, topic, 3, 3)
        create_topic(made, f"{topic}-seen", 1, 3)
        create_topic(made, f"{topic}-trips", 1, 3, TYPED_CONFIG)
    with Clicks(servers, topic):
        done = subprocess.run(
            [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 0, done.stdout + done.stderr
    finished = [line for line in done.stdout.splitlines() if line.startswith("block ")]
    assert finished == [f"block {number}" for number in range(len(parts))]
    assert "typed ['id', 'fare', '_offset']" in done.stdout


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("{'bootstrap.server': 'x:1'}", "'bootstrap.server' is not a setting of the producer"),
        ("'127.0.0.1:9092'", "the settings of the producer are a dictionary"),
    ],
)
def test_settings_that_are_not_as_in_the_document_are_refused(config, told):
    """Else a wrong name in a block would not show."""
    script = f"from storage_engine.client import Producer; Producer({config})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert told in done.stderr
