"""`headrace machine`: brokers of two machines are laid out, started and pinned; one machine's are
restarted one by one while producers go on, a broker and the command are killed in the middle, and
nothing acknowledged is lost.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.cluster_support import (
    FEW_GROUPS,
    HEALED_S,
    wait_until,
    zookeeper_for,
)
from integration_tests.support.command_line import fail, processes_of, start, succeed
from integration_tests.support.steady_producer import SteadyProducer, check_kept
from storage_engine.tools.local.free_ports import find_free_port, is_port_free
from storage_engine.tools.local.machine.host_facts import usable_cpus

HOSTS = ("127.0.0.1", "127.0.0.2")
"""Two machines, as far as addresses tell."""
TOPIC = "steady"
PATIENT = (("zookeeper.connection.timeout.ms", "60000"),)
"""For brokers that start on a busy machine. The session keeps its 6 s: whoever is killed here is
seen to be dead at once, and a living broker must not lose its session meanwhile."""
FIRST_IDS = (1_000, 2_000)


class Machines:
    """Of three brokers and of one."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.folders = [folder / f"machine-{host}" for host in HOSTS]
        settings = [f"--set={key}={value}" for key, value in (*FEW_GROUPS, *PATIENT)]
        for directory, host, cores, first_id in zip(
            self.folders, HOSTS, (3, 1), FIRST_IDS, strict=True
        ):
            disks = [folder / f"disk-{host}-{number}" for number in range(2)]
            for disk in disks:
                disk.mkdir()
            succeed(
                *("machine", "init", "--dir", directory, "--host", host, "--cores", cores),
                *("--disks", ",".join(map(str, disks)), "--zookeeper", zookeeper),
                *("--first-id", first_id, "--base-port", _free_range(host), "--machines", 2),
                *("--memory", "2g", "--same-disk-ok", "--shared-cores-ok"),
                *settings,
            )
            succeed("machine", "start", "--dir", directory)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.status(number)["bootstrap_servers"] for number in (0, 1))

    def status(self, number: int) -> dict[str, Any]:
        directory = self.folders[number]
        found: dict[str, Any] = json.loads(
            succeed("machine", "status", "--dir", directory, "--json")
        )
        return found

    def pids(self, number: int) -> dict[int, int]:
        """Of those that run."""
        brokers = self.status(number)["brokers"]
        return {each["id"]: each["pid"] for each in brokers if each["pid"] is not None}

    def stop(self) -> None:
        for directory in self.folders:
            if (directory / "machine.json").exists():
                succeed("machine", "stop", "--dir", directory)


def _free_range(host: str) -> int:
    """The first of three ports that were free a moment ago, as those of their metrics were."""

    def is_free(port: int) -> bool:
        return all(
            is_port_free(host, port + i) and is_port_free(HOSTS[0], port + i + 10_000)
            for i in range(3)
        )

    return wait_until(lambda: next(filter(is_free, (find_free_port(host),)), 0), "free ports")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with zookeeper_for(tmp_path / "zookeeper") as connect:
        made = None
        try:
            made = Machines(tmp_path, connect)
            yield made
        finally:
            if made is not None:
                made.stop()
            for pid in processes_of(tmp_path):
                if b"server.properties" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


def _cpus_of(pid: int) -> set[str]:
    """Those on which any of its threads may run."""
    texts = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return {found[1] for text in texts if (found := re.search(r"Cpus_allowed_list:\s*(\S+)", text))}


def _restart(directory: Path, until: str) -> "subprocess.Popen[str]":
    """The command, once it has written a line of that form."""
    command = start("machine", "restart", "--dir", directory)
    assert command.stderr is not None
    seen = []
    for line in command.stderr:
        seen.append(line)
        if re.search(until, line):
            return command
    raise AssertionError(f"the command ended without {until!r}: {seen}")


def test_a_rolling_restart_with_kills_loses_nothing(machines: Machines) -> None:
    directory = machines.folders[0]
    assert succeed("machine", "start", "--dir", directory) == "all brokers run already\n"
    for broker in machines.status(0)["brokers"]:
        assert _cpus_of(broker["pid"]) == {str(broker["cpu"])}
        assert broker["cpu"] in usable_cpus()
    servers = machines.bootstrap_servers
    at = ("--bootstrap-server", servers)
    succeed("topics", "create", TOPIC, *at, "--partitions", 6, "--replication-factor", 2)
    with (
        SteadyProducer(servers, TOPIC) as first,
        SteadyProducer(servers, TOPIC, partition=1) as second,
    ):
        before = machines.pids(0)
        # The command dies while a broker is down.
        command = _restart(directory, r"^broker \d+ stopped")
        command.kill()
        command.communicate(timeout=60)
        assert len(machines.pids(0)) >= 2
        # A broker dies while the command runs that goes on from there.
        command = _restart(directory, r"^broker \d+ serves")
        running = machines.pids(0)
        victim = next(
            each for each in sorted(running, reverse=True) if running[each] in before.values()
        )
        os.kill(running[victim], signal.SIGKILL)
        output, errors = command.communicate(timeout=HEALED_S)
        assert command.returncode == 0, errors
        assert output.startswith("restarted: "), output
        after = machines.pids(0)
        assert set(after) == set(before)
        assert not set(after.values()) & set(before.values())
        wait_until(
            lambda: [each["behind"] for each in machines.status(0)["brokers"]] == [0, 0, 0],
            "all replicas are in sync",
            timeout_s=HEALED_S,
        )
        first.finish()
        second.finish()
        check_kept(servers, TOPIC, first)
        check_kept(servers, TOPIC, second, partition=1)
    assert succeed("machine", "stop", "--dir", directory) == "stopped: 1000, 1001, 1002\n"
    assert succeed("machine", "stop", "--dir", directory) == "no broker was running\n"
    assert machines.pids(0) == {}


def test_a_broker_that_does_not_come_back_ends_the_restart(machines: Machines) -> None:
    directory = machines.folders[0]
    # The controller comes last.
    first = min(each["id"] for each in machines.status(0)["brokers"] if not each["is_controller"])
    config = directory / f"broker-{first}" / "server.properties"
    config.write_text(config.read_text() + "num.partition=7\n")
    before = machines.pids(0)
    error = fail("machine", "restart", "--dir", directory)
    assert error.startswith(f"broker {first} ended while it started: ")
    assert "did you mean 'num.partitions'?" in error
    assert error.endswith("run the command again when that is mended")
    after = machines.pids(0)
    assert after == {each: pid for each, pid in before.items() if each != first}
    config.write_text(config.read_text().replace("num.partition=7\n", ""))
    assert succeed("machine", "start", "--dir", directory) == f"started: {first}\n"
