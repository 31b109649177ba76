"""The commands of docs/operations.md run as they stand there, on machines of one broker each."""

import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.documents.blocks import ROOT
from integration_tests.support.cluster_support import (
    FEW_GROUPS,
    admin,
    create_topic,
    wait_until,
    zookeeper_for,
)
from integration_tests.support.command_line import processes_of, succeed
from integration_tests.support.steady_producer import SteadyProducer, check_kept
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.free_ports import find_free_port, is_port_free

DOCUMENT = ROOT / "docs" / "operations.md"
HOSTS = {f"h{number}": f"127.0.0.{number}" for number in range(1, 5)}
TOPIC = "orders"
SETTINGS = (*FEW_GROUPS, ("zookeeper.connection.timeout.ms", "60000"))
ON_ONE_MACHINE = ("--same-disk-ok", "--shared-cores-ok", "--memory", "1g")
"""What the document's machines do without."""


class Machines:
    """h1, h2 and h3 run; the document adds h4."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.folder = folder
        self._zookeeper = zookeeper
        for host in ("h1", "h2", "h3"):
            self._init(host)
            succeed("machine", "start", "--dir", self.directory(host))

    @property
    def bootstrap_servers(self) -> str:
        said = succeed("machine", "status", "--dir", self.directory("h1"), "--json")
        found: str = json.loads(said)["bootstrap_servers"]
        return found

    def directory(self, host: str) -> Path:
        return self.folder / host / "machine"

    def disk(self, host: str) -> Path:
        return self.folder / host / "disk"

    def _init(self, host: str) -> None:
        self.run(
            f"headrace machine init --dir /var/lib/headrace --host {host} --cores 1 --disks /d1 "
            "--zookeeper h1:2181",
            host,
        )

    def run(self, command: str, host: str = "h1") -> str:
        """A line of the document, typed on that host."""
        _, *arguments = shlex.split(command)
        if arguments[:2] == ["machine", "init"]:
            self.disk(host).mkdir(parents=True)
            number = int(host.removeprefix("h"))
            arguments += [*ON_ONE_MACHINE, "--first-id", f"{number}000"]
            arguments += ["--base-port", str(_free_port(HOSTS[host]))]
            arguments += [f"--set={key}={value}" for key, value in SETTINGS]
        return succeed(*(each for given in arguments for each in self._here(given, host)))

    def _here(self, argument: str, host: str) -> list[str]:
        """What stands here for what stands in the document."""
        if argument.startswith("/var/lib/headrace"):
            below = argument.removeprefix("/var/lib/headrace").lstrip("/")
            if "*" in below:
                return [str(each) for each in sorted(self.directory(host).glob(below))]
            return [str(self.directory(host) / below)]
        if argument.startswith("/srv/"):
            return [str(self.folder / argument.removeprefix("/srv/"))]
        if argument.startswith("/d1"):
            return [str(self.disk(host))]
        if ":2181" in argument:
            return [self._zookeeper]
        if ":9092" in argument:
            return [self.bootstrap_servers]
        return [{"14": "1", **HOSTS}.get(argument, argument)]

    def replicas_of(self, broker: int) -> int:
        topics = admin(self).list_topics(timeout=30).topics
        partitions = (each for topic in topics.values() for each in topic.partitions.values())
        return sum(broker in each.replicas for each in partitions)

    def level(self) -> int:
        said = succeed(
            "features", "describe", "--bootstrap-server", self.bootstrap_servers, "--json"
        )
        rows = json.loads(said)
        found: int = next(row["level"] for row in rows if row["feature"] == "group.version")
        return found

    def stop(self) -> None:
        for host in HOSTS:
            if (self.directory(host) / "machine.json").exists():
                succeed("machine", "stop", "--dir", self.directory(host))


def _free_port(host: str) -> int:
    def is_free(port: int) -> bool:
        return is_port_free(host, port) and is_port_free("127.0.0.1", port + 10_000)

    return wait_until(lambda: next(filter(is_free, (find_free_port(host),)), 0), "free ports")


def commands_of(heading: str) -> list[str]:
    """The lines of the first block below a heading."""
    text = DOCUMENT.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", f"{text}\n## ", re.DOTALL | re.M)
    block = re.search(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert block is not None, heading
    return block[1].splitlines()


@pytest.fixture(scope="module")
def machines(tmp_path_factory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("handbook")
    with zookeeper_for(folder / "zookeeper") as connect:
        made = None
        try:
            made = Machines(folder, connect)
            create_topic(made, TOPIC, partitions=8)
            yield made
        finally:
            if made is not None:
                made.stop()
            for pid in processes_of(folder):
                if b"server.properties" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


@in_full
def test_the_handbook_is_followed_from_the_first_cluster_to_an_incident(machines):
    with SteadyProducer(machines.bootstrap_servers, TOPIC) as producer:
        for line in commands_of("A first cluster"):
            said = machines.run(line)
            assert "verify-replicas" not in line or "differs" not in said

        for line in commands_of("Add a machine"):
            machines.run(line, "h4")
        moved = machines.replicas_of(4000)
        assert moved > 0

        preview, drain, undo = commands_of("Take a broker or machine out of service")
        machines.run(preview)
        assert machines.replicas_of(4000) == moved
        machines.run(drain)
        assert machines.replicas_of(4000) == 0
        machines.run(undo)
        assert machines.replicas_of(4000) == moved

        replace_a_disk(machines, commands_of("Replace a disk"))

        for line in commands_of("Roll back"):
            machines.run(line)
        assert machines.level() == 0
        for line in commands_of("Upgrades"):
            machines.run(line)
        assert machines.level() == 1

        check_kept(machines.bootstrap_servers, TOPIC, producer)
    for heading in ("Size it", "Back up", "After an incident"):
        for line in commands_of(heading):
            machines.run(line)
    assert list((machines.folder / "orders").rglob("*.parquet"))


def replace_a_disk(machines: Machines, commands: list[str]) -> None:
    """The disk of h1 is another one, and its broker fills it."""
    said = json.loads(succeed("machine", "status", "--dir", machines.directory("h1"), "--json"))
    os.kill(said["brokers"][0]["pid"], signal.SIGKILL)
    for path in machines.disk("h1").iterdir():
        shutil.rmtree(path)
    status, restart, verify = commands
    machines.run(status)
    machines.run(restart)
    assert list(machines.disk("h1").rglob(f"{TOPIC}-*"))
    machines.run(verify)


def test_alerts_that_wake_somebody_are_all_that_are_critical():
    rules = (ROOT / "conf" / "monitoring" / "alert-rules.yml").read_text()
    critical = set(re.findall(r"alert: (\w+)(?:(?!alert:).)*?severity: critical", rules, re.DOTALL))
    section = DOCUMENT.read_text().partition("## Alerts")[2].partition("The others wait")[0]
    assert set(re.findall(r"`(Headrace\w+)`", section)) == critical
