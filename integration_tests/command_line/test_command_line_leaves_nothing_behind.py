"""`up --detach`, `status`, `down`: no process and no port stays, whatever died in between."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.cluster_support import wait_until
from integration_tests.support.command_line import (
    cluster_json,
    fail,
    headrace,
    listens,
    processes_of,
    start,
    succeed,
    succeed_here,
)
from storage_engine.log.dirs.log_dir import FORMAT_VERSION, META_FILE


@pytest.fixture
def directory(tmp_path: Path):
    path = tmp_path / "cluster"
    yield path
    headrace("down", "--dir", path, "--timeout", "5")
    assert processes_of(path) == []


def _addresses(directory: Path) -> list[str]:
    cluster = cluster_json(directory)
    return [cluster["zookeeper"], *cluster["bootstrap_servers"].split(",")]


def _described(topic: str, servers: str) -> dict[str, Any]:
    (document,) = json.loads(
        succeed("topics", "describe", topic, "--bootstrap-server", servers, "--json")
    )
    return document


def test_a_detached_cluster_is_up_when_up_returns_and_gone_after_down(directory: Path) -> None:
    output = succeed("up", "--dir", directory, "--port", "0", "--detach")
    cluster = cluster_json(directory)
    assert cluster["bootstrap_servers"] in output
    assert [broker["id"] for broker in cluster["brokers"]] == [1, 2, 3]
    console = cluster["console"]
    assert f"console: {console['url']}\n" in output
    pids = {cluster["zookeeper_pid"], *(broker["pid"] for broker in cluster["brokers"])}
    assert pids | {console["pid"]} == set(processes_of(directory))
    with urllib.request.urlopen(console["url"], timeout=10) as page:
        assert page.status == 200

    status = json.loads(succeed("status", "--dir", directory, "--json"))
    assert [broker["alive"] for broker in status["brokers"]] == [True] * 3
    assert status["controller"] in (1, 2, 3)
    assert (status["topics"], status["under_replicated"], status["offline"]) == ([], [], [])

    servers = cluster["bootstrap_servers"]
    succeed("topics", "create", "replicated", "--bootstrap-server", servers)
    topic = _described("replicated", servers)
    assert topic["replication_factor"] == 3
    assert topic["configs"]["min.insync.replicas"]["value"] == "2"

    addresses = _addresses(directory)
    assert all(listens(address) for address in addresses)
    assert succeed("down", "--dir", directory) == "all stopped\n"
    assert processes_of(directory) == []
    assert not any(listens(address) for address in addresses)
    cluster = cluster_json(directory)
    assert cluster["zookeeper_pid"] is None
    assert [broker["pid"] for broker in cluster["brokers"]] == [None] * 3
    assert cluster["console"]["pid"] is None
    assert "nothing was running" in succeed("down", "--dir", directory)


def test_down_leaves_nothing_also_after_a_broker_and_zookeeper_were_killed(
    directory: Path,
) -> None:
    succeed_here(
        "up", "--no-console", "--dir", directory, "--port", "0", "--brokers", "2", "--detach"
    )
    cluster = cluster_json(directory)
    addresses = _addresses(directory)
    os.kill(cluster["brokers"][0]["pid"], signal.SIGKILL)
    os.kill(cluster["zookeeper_pid"], signal.SIGKILL)
    succeed("down", "--dir", directory, "--timeout", "10")
    assert processes_of(directory) == []
    assert not any(listens(address) for address in addresses)


def test_up_again_continues_with_data_ports_and_settings(directory: Path) -> None:
    succeed_here(
        "up",
        "--no-console",
        "--dir",
        directory,
        "--port",
        "0",
        "--brokers",
        "1",
        "--set",
        "num.partitions=7",
        "--detach",
    )
    before = cluster_json(directory)
    servers = before["bootstrap_servers"]
    succeed("topics", "create", "kept", "--bootstrap-server", servers)
    succeed("produce", "kept", "--bootstrap-server", servers, stdin=b"one\ntwo\n")
    succeed("down", "--dir", directory)

    succeed("up", "--no-console", "--dir", directory, "--detach")
    after = cluster_json(directory)
    assert after["bootstrap_servers"] == servers
    assert after["zookeeper"] == before["zookeeper"]
    read = succeed("consume", "kept", "--bootstrap-server", servers, "--max", "2")
    assert sorted(read.splitlines()) == ["one", "two"]
    assert len(_described("kept", servers)["partitions"]) == 7
    assert (directory / "broker-1" / "data" / "kept-0").is_dir()


def test_up_in_the_foreground_tells_of_a_dead_broker_and_stops_all_at_ctrl_c(
    directory: Path,
) -> None:
    command = start("up", "--no-console", "--dir", directory, "--port", "0", "--brokers", "1")
    try:
        assert command.stdout is not None and command.stderr is not None
        assert command.stdout.readline().startswith("bootstrap servers: ")
        addresses = _addresses(directory)
        os.kill(cluster_json(directory)["brokers"][0]["pid"], signal.SIGKILL)
        told = next(line for line in command.stderr if "start it again with" in line)
        assert told.startswith("broker 1 ended (signal 9)")
        assert cluster_json(directory)["brokers"][0]["pid"] is None
        succeed("start-broker", "--dir", directory, "1")
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 0
    finally:
        command.kill()
        command.communicate()
    assert processes_of(directory) == []
    assert not any(listens(address) for address in addresses)


def test_up_in_the_foreground_ends_when_another_command_stops_the_cluster(
    directory: Path,
) -> None:
    command = start("up", "--no-console", "--dir", directory, "--port", "0", "--brokers", "1")
    try:
        assert command.stdout is not None
        assert command.stdout.readline().startswith("bootstrap servers: ")
        succeed("down", "--dir", directory)
        assert command.wait(60) == 0
    finally:
        command.kill()
        command.communicate()


def test_a_broker_that_cannot_start_stops_up_with_its_own_words(directory: Path) -> None:
    data = directory / "broker-1" / "data"
    data.mkdir(parents=True)
    (data / META_FILE).write_text(f"version={FORMAT_VERSION}\nbroker.id=8\n")
    error = fail(
        "up", "--no-console", "--dir", directory, "--port", "0", "--brokers", "1", "--detach"
    )
    assert error.startswith("broker 1 ended while it started (exit status 1): ")
    assert "8" in error
    assert processes_of(directory) == []


def test_a_port_in_use_is_one_line_and_starts_nothing(directory: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = fail(
            "up", "--no-console", "--dir", directory, "--brokers", "1", "--port", port, "--detach"
        )
    assert f"port {port} of 127.0.0.1, for broker 1, is in use" in error
    assert processes_of(directory) == []


def test_a_killed_up_leaves_what_up_and_down_find_also_when_its_file_was_lost(
    directory: Path,
) -> None:
    command = start("up", "--no-console", "--dir", directory, "--port", "0", "--brokers", "1")
    try:
        assert command.stdout is not None
        assert command.stdout.readline().startswith("bootstrap servers: ")
    finally:
        command.kill()
        command.communicate()
    assert len(processes_of(directory)) == 2
    wait_until(lambda: listens(_addresses(directory)[1]), "the broker goes on")
    before = (directory / "cluster.json").read_text()
    (directory / "cluster.json").unlink()
    assert "there is no cluster" in fail("down", "--dir", directory)
    succeed("up", "--no-console", "--dir", directory, "--detach")
    assert (directory / "cluster.json").read_text() == before
    succeed("down", "--dir", directory)
    assert processes_of(directory) == []


def test_ctrl_c_while_up_waits_stops_what_it_started(directory: Path) -> None:
    command = start(
        "up", "--no-console", "--dir", directory, "--port", "0", "--brokers", "1", "--detach"
    )
    try:
        assert command.stderr is not None
        next(line for line in command.stderr if "starts (pid" in line)
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 130
    finally:
        command.kill()
        command.communicate()
    assert processes_of(directory) == []


BLOCK = """
import sys, time
from pathlib import Path
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster

def tell(line):
    print(line, flush=True)

with LocalCluster.running(Path(sys.argv[1]), UpRequest(brokers=1, port=0), progress=tell):
    tell("within the block")
    time.sleep(600)
"""


def test_a_second_ctrl_c_does_not_interrupt_what_the_first_one_stops(directory: Path) -> None:
    command = subprocess.Popen(
        [sys.executable, "-P", "-c", BLOCK, directory],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert command.stdout is not None
        assert "within the block\n" in iter(command.stdout.readline, "")
        command.send_signal(signal.SIGINT)
        assert "stopped" in next(command.stdout)
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=60)
        assert errors.endswith("KeyboardInterrupt\n")
    finally:
        command.kill()
        command.communicate()
    assert processes_of(directory) == []
