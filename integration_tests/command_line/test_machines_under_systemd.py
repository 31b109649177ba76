"""The units of `headrace machine` under a systemd of a user: brokers are started, stopped and
restarted by it, and what a killed broker leaves behind is not killed with it.

Needs root, systemd and control groups that can be made. The systemd runs in a mount namespace of
its own with another /run, so that it meets nobody else's.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.cluster_support import (
    HEALED_S,
    QUICK_FAILOVER,
    wait_until,
    zookeeper_for,
)
from integration_tests.support.command_line import COMMAND, ROOT, processes_of
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.free_ports import find_free_port

SYSTEMD = Path("/lib/systemd/systemd")
HIERARCHIES = ("unified", "systemd", "")
"""Below /sys/fs/cgroup, those in which systemd keeps track of processes: hybrid, or the only
one."""

pytestmark = [
    in_full,
    pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace takes root's rights"),
    pytest.mark.skipif(
        not SYSTEMD.exists() or shutil.which("systemctl") is None,
        reason="there is no systemd: install Debian's package systemd",
    ),
]


class UserSystemd:
    """Commands are run beside it."""

    def __init__(self, home: Path, groups: list[Path]) -> None:
        self._environment = {
            **os.environ,
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_RUNTIME_DIR": "/run/user/headrace",
            "PYTHONPATH": str(ROOT),
        }
        joins = "".join(f"echo $$ > {group}/cgroup.procs; " for group in groups)
        script = (
            "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system -m 755 && "
            "mkdir -p /run/user && mkdir -m 700 /run/user/headrace && "
            f"{joins} exec {SYSTEMD} --user --log-target=console"
        )
        with (home / "systemd.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-ec", script],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, *command: object) -> "subprocess.CompletedProcess[str]":
        inside = ["nsenter", "--target", str(self._process.pid), "--mount", f"--wd={ROOT}"]
        return subprocess.run(
            [*inside, *map(str, command)],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=HEALED_S,
            check=False,
        )

    def succeed(self, *command: object) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_up(self) -> bool:
        return self.run("systemctl", "--user", "show", "--property=Version").returncode == 0

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait(60)


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    """A control group of our own in each hierarchy."""
    name = f"headrace-{uuid.uuid4().hex[:8]}"
    bases = [Path("/sys/fs/cgroup") / each for each in HIERARCHIES]
    made = []
    try:
        for base in bases:
            if (base / "cgroup.procs").exists():
                (base / name).mkdir()
                made.append(base / name)
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield made
    finally:
        for group in made:
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()


@pytest.fixture
def systemd(tmp_path: Path, groups: list[Path]) -> Iterator[UserSystemd]:
    started = UserSystemd(tmp_path, groups)
    try:
        with contextlib.suppress(AssertionError):
            wait_until(started.is_up, "systemd answers", timeout_s=30)
        if not started.is_up():
            log = (tmp_path / "systemd.log").read_text()
            pytest.skip(f"a systemd of a user does not run here: {log[-300:]}")
        yield started
    finally:
        started.close()
        for pid in processes_of(tmp_path / "machine"):
            os.kill(pid, signal.SIGKILL)


def _group_of(pid: int) -> Path:
    """The folder of its control group, where systemd keeps track of it."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    path = next(line.split(":", 2)[2] for line in lines if line.startswith("0::"))
    base = Path("/sys/fs/cgroup/unified")
    return (base if base.exists() else base.parent) / path.lstrip("/")


def test_systemd_runs_the_brokers_and_leaves_their_watchers_alone(tmp_path, systemd):
    disk = tmp_path / "disk"
    disk.mkdir()
    directory = tmp_path / "machine"
    headrace = [*COMMAND, "machine"]
    with zookeeper_for(tmp_path / "zookeeper") as connect:
        made = json.loads(
            systemd.succeed(
                *(*headrace, "init", "--dir", directory, "--host", "127.0.0.1", "--cores", 2),
                *("--disks", disk, "--zookeeper", connect, "--first-id", 7_000, "--machines", 1),
                *("--base-port", find_free_port("127.0.0.1"), "--memory", "2g", "--user"),
                *("--same-disk-ok", "--shared-cores-ok", "--json"),
                *(f"--set={key}={value}" for key, value in QUICK_FAILOVER),
            )
        )
        assert made["units_checked"]
        for command in made["install_commands"]:
            systemd.succeed("sh", "-c", command)
        systemd.succeed(*headrace, "start", "--dir", directory)
        status = json.loads(systemd.succeed(*headrace, "status", "--dir", directory, "--json"))
        assert status["supervisor"] == "systemd"
        broker = status["brokers"][0]
        allowed = Path(f"/proc/{broker['pid']}/status").read_text()
        assert f"Cpus_allowed_list:\t{broker['cpu']}\n" in allowed
        # As the process that closes a dead broker's session.
        watcher = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        try:
            (_group_of(broker["pid"]) / "cgroup.procs").write_text(str(watcher.pid))
            os.kill(broker["pid"], signal.SIGKILL)

            def restarted() -> bool:
                now = json.loads(systemd.succeed(*headrace, "status", "--dir", directory, "--json"))
                return now["brokers"][0]["pid"] not in (None, broker["pid"])

            wait_until(restarted, "systemd starts the broker again")
            assert watcher.poll() is None
        finally:
            watcher.kill()
            watcher.wait()
        restart = systemd.run(*headrace, "restart", "--dir", directory)
        assert restart.returncode == 0, restart.stderr
        assert restart.stdout.startswith("restarted: ")
        assert systemd.succeed(*headrace, "stop", "--dir", directory) == "stopped: 7000, 7001\n"
        active = systemd.run("systemctl", "--user", "is-active", "headrace-broker-7000.service")
        assert active.stdout == "inactive\n"
