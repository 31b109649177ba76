"""The cluster of the compose file: it serves, hands over at SIGTERM, and survives a kill."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from integration_tests.containers.podman import (
    CONTAINER,
    Podman,
    skip_where_containers_cannot_run,
)
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.steady_producer import SteadyProducer, acknowledged_more, check_kept
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.free_ports import find_free_port

pytestmark = in_full

PROJECT, TOPIC = "headrace-test", "numbers"
STARTED_S, STOPPED_S = 120.0, "60"


class Composed(NamedTuple):
    podman: Podman
    bootstrap_servers: str

    def broker(self, number: int) -> str:
        """The name of its container."""
        return f"{PROJECT}_broker-{number}_1"


@pytest.fixture(scope="module")
def podman(tmp_path_factory) -> Iterator[Podman]:
    skip_where_containers_cannot_run()
    made = Podman(tmp_path_factory.mktemp("podman"))
    try:
        made.build_image()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def cluster(podman, tmp_path_factory) -> Iterator[Composed]:
    text, ports = (CONTAINER / "compose.yml").read_text(), set[int]()
    for port in (9092, 9093, 9094):
        free = find_free_port("127.0.0.1", avoid=ports)
        ports.add(free)
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    file = tmp_path_factory.mktemp("compose") / "compose.yml"
    file.write_text(text)
    composed = Composed(podman, ",".join(f"127.0.0.1:{port}" for port in sorted(ports)))
    try:
        _compose(podman, file, "up", "-d")
        wait_until(
            lambda: _brokers(composed) == {1, 2, 3}, "all brokers serve", timeout_s=STARTED_S
        )
        create_topic(composed, TOPIC)
        yield composed
    finally:
        _compose(podman, file, "down", "--volumes")


def _compose(podman: Podman, file: Path, *action: str) -> None:
    command = ["podman-compose", "--podman-path", podman.path, "-p", PROJECT, "-f", file, *action]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=STARTED_S, cwd=file.parent, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _brokers(cluster: Composed) -> set[int]:
    from confluent_kafka import KafkaException

    try:
        return set(admin(cluster).list_topics(timeout=5).brokers)
    except KafkaException:
        return set()


def is_healthy(cluster: Composed, number: int) -> bool:
    return cluster.podman.run("healthcheck", "run", cluster.broker(number)).returncode == 0


def test_a_stop_hands_over_and_a_kill_loses_nothing(cluster):
    podman, client = cluster.podman, admin(cluster)
    with SteadyProducer(cluster.bootstrap_servers, TOPIC) as producer:
        acknowledged_more(producer, STARTED_S)
        podman("stop", "--time", STOPPED_S, cluster.broker(2))
        assert podman.exit_status(cluster.broker(2)) == 0
        logged = podman.run("logs", cluster.broker(2))
        assert "broker 2 stopped" in logged.stdout + logged.stderr
        acknowledged_more(producer, STARTED_S)
        podman("start", cluster.broker(2))
        wait_for_isr(client, TOPIC, 3)
        podman("kill", "--signal", "KILL", cluster.broker(3))
        acknowledged_more(producer, STARTED_S)
        podman.run("start", cluster.broker(3))
        wait_for_isr(client, TOPIC, 3)
        check_kept(cluster.bootstrap_servers, TOPIC, producer)


def test_no_process_of_a_broker_is_root(cluster):
    first = cluster.podman.first_process(cluster.broker(1))
    status = Path(f"/proc/{first}/status").read_text()
    assert "\nUid:\t10001\t" in status
    data = cluster.podman(
        "exec", cluster.broker(1), "stat", "-c", "%a %u", "/var/lib/headrace/data"
    )
    assert data == "700 10001"


def test_a_broker_that_hangs_is_ill(cluster):
    wait_until(lambda: is_healthy(cluster, 1), "broker 1 is well")
    first = cluster.podman.first_process(cluster.broker(1))
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGSTOP)
    try:
        assert not is_healthy(cluster, 1)
    finally:
        for child in children:
            os.kill(int(child), signal.SIGCONT)
    wait_until(lambda: is_healthy(cluster, 1), "broker 1 is well again")


def test_a_wrong_variable_ends_a_broker_with_one_line(podman):
    done = podman.run("run", "--rm", "--env", "HEADRACE_PORT=tcp://10.0.0.1:9092", "headrace")
    assert done.returncode == 1
    assert "headrace: HEADRACE_PORT: there is no setting 'port'" in done.stderr
