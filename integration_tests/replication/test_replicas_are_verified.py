"""`headrace verify-replicas`: equal replicas are found equal; a batch that was changed on one
replica's disk, with a right CRC, is found; a broker that hangs is told with its replicas (R-TOOL2).
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from storage_engine.protocol.records.record_batch import HEADER_BYTES, iter_headers, seal
from storage_engine.tools.cli import main
from storage_engine.tools.local.local_cluster import LocalCluster

BATCHES = 30
PARTITIONS = 2


def _fill(cluster: LocalCluster, topic: str) -> None:
    """Every flush makes a batch in each partition."""
    create_topic(cluster, topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(BATCHES):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"value %d" % number, partition=partition)
        assert producer.flush(60) == 0


class Verifier:
    """The command, in this process: a start of Python for each call takes long."""

    def __init__(self, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._server = cluster.bootstrap_servers
        self._capsys = capsys

    def run(self, topics: str, *more: str) -> tuple[int, str, str]:
        """Exit status, stdout and stderr."""
        self._capsys.readouterr()
        arguments = ["--bootstrap-server", self._server, "--topics", topics, *more]
        status = main(["verify-replicas", *arguments])
        return (status, *self._capsys.readouterr())

    def verify(self, topics: str, *more: str) -> tuple[int, dict[str, Any]]:
        """The exit status and the document."""
        status, output, errors = self.run(topics, "--json", *more)
        assert output, errors
        return status, json.loads(output)

    def finds_all_equal(self, topics: str) -> bool:
        """Also the followers' high watermarks, which follow the leader's a moment later."""
        status, document = self.verify(topics)
        assert status == 0, document
        return all(
            replica["result"] == "equal" and replica["lag"] == 0
            for partition in document["partitions"]
            for replica in partition["replicas"]
        )


def _replicas(document: dict[str, Any], topic: str, partition: int) -> dict[int, dict[str, Any]]:
    (found,) = (
        each
        for each in document["partitions"]
        if (each["topic"], each["partition"]) == (topic, partition)
    )
    return {each["replica"]: each for each in found["replicas"]}


def _alter(segment: Path, number: int) -> int:
    """Change the last byte but one of a batch and seal it anew; its base offset."""
    data = bytearray(segment.read_bytes())
    position, header = list(iter_headers(data))[number]
    assert header.size_in_bytes > HEADER_BYTES + 2
    data[position + header.size_in_bytes - 2] ^= 1
    view = memoryview(data)[position : position + header.size_in_bytes]
    seal(view, 0, header)
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(view)
    return header.base_offset


def test_replicas_are_compared_offset_by_offset(tmp_path, capsys):
    with running_cluster(tmp_path) as cluster:
        verifier = Verifier(cluster, capsys)
        client = admin(cluster)
        for topic in ("orders", "other"):
            _fill(cluster, topic)
            for partition in range(PARTITIONS):
                wait_for_isr(client, topic, 3, partition)
        wait_until(lambda: verifier.finds_all_equal("o.*"), "all replicas have all")
        leader = leader_of(client, "orders", 1)
        follower = leader % 3 + 1
        data = cluster.directory / cluster.state.brokers[follower - 1].data_dir
        (segment,) = (data / "orders-1").glob("*.log")
        offset = _alter(segment, 17)

        status, document = verifier.verify("o.*")
        assert status == 1
        assert document["differences"] == 1
        found = _replicas(document, "orders", 1)
        assert found[follower]["result"] == "differs"
        assert found[follower]["first_different_offset"] == offset
        assert found[follower]["what"].startswith("other contents: CRC")
        assert found[leader]["result"] == "equal"
        assert verifier.verify("other")[0] == 0
        status, table, summary = verifier.run("orders")
        assert status == 1
        (line,) = (line for line in table.splitlines() if "differs" in line)
        assert line.split()[:3] == ["orders", "1", str(follower)]
        assert "1 differ" in summary

        pid = cluster.state.brokers[follower - 1].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            status, document = verifier.verify("other", "--timeout", "2")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert status == 1
        hung = _replicas(document, "other", 0)[follower]
        assert (hung["result"], hung["lag"]) == ("no answer", None)
        others = [each for id_, each in _replicas(document, "other", 0).items() if id_ != follower]
        assert all(each["result"] == "equal" for each in others)

        status, _, said = verifier.run("(")
        assert status == 2
        assert said.startswith("headrace: '--topics (' is not a regular expression")
        status, _, said = verifier.run("nothing")
        assert status == 1
        assert "no topic's name matches 'nothing'" in said
