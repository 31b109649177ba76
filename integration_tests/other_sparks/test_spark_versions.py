"""The promises on earlier versions of Spark: a driver killed in its first micro-batch loses
nothing, one killed after the commit doubles nothing, and what a version lacks is told in one line.

With HEADRACE_FAULTS=full. Every other test of Spark runs on one of them with
`HEADRACE_SPARK=4.0 python -m pytest …`, as `make test-all` does.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support import spark_versions
from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from integration_tests.support.spark_support import consume, last_line, produce
from storage_engine.tests.sampling import in_full

RUN_TIMEOUT_S = 300
BEFORE, MEANWHILE, MORE = range(0, 100), range(100, 2100), range(2100, 3000)


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory):
    settings = (("transaction.state.log.num.partitions", "2"),)
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=settings) as made:
        yield made


class Driver:
    """A driver in a process group of its own, with its JVM and its Python workers."""

    def __init__(self, version: str, servers: str, topic: str, folder: Path) -> None:
        self._folder = folder
        command = [sys.executable, "-m", "integration_tests.other_sparks.spark_version_driver"]
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, servers, topic, f"{topic}-target", str(folder)],
                cwd=spark_versions.ROOT,
                env=spark_versions.environment(version),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def reaches(self, file: str) -> None:
        reached = self._folder / file
        wait_until(
            lambda: reached.exists() or self._process.poll() is not None,
            file,
            timeout_s=RUN_TIMEOUT_S,
        )
        assert self._process.poll() is None, self._log()

    def ends(self) -> None:
        assert self._process.wait(RUN_TIMEOUT_S) == 0, self._log()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        reached = self._folder / "reached"
        if reached.exists():
            # The Python worker that commits is in another group, and would go on.
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(reached.read_text()), signal.SIGKILL)
            reached.unlink()

    def _log(self) -> str:
        return (self._folder / "log").read_text()[-4000:]


@contextlib.contextmanager
def driver(version: str, servers: str, topic: str, folder: Path) -> Iterator[Driver]:
    made = Driver(version, servers, topic, folder)
    try:
        yield made
    finally:
        made.kill()


def _values(numbers):
    return [{"value": str(number)} for number in numbers]


def _ids(servers, topic):
    return Counter(int((each.value() or b"").split(b":")[0]) for each in consume(servers, topic))


@in_full
@pytest.mark.parametrize("version", spark_versions.EARLIER)
@pytest.mark.skipif(spark_versions.CHOSEN is not None, reason="starts versions of its own")
def test_the_promises_hold(spark_cluster, servers, topic, tmp_path, version):
    if not spark_versions.is_installed(version):
        pytest.skip(f"Spark {version} is not there: make .venv/versions/{version}/classes.jsa")
    for name in (topic, f"{topic}-target", f"{topic}-target-batch"):
        create_topic(spark_cluster, name, partitions=3, replication_factor=1)
    produce(servers, topic, _values(BEFORE))

    # `latest` holds from the first start on, although Spark never writes it down.
    (tmp_path / "before-commit-0").touch()
    with driver(version, servers, topic, tmp_path) as killed:
        killed.reaches("reached")
        produce(servers, topic, _values(MEANWHILE))
    assert not (tmp_path / "checkpoint" / "commits" / "0").exists()

    # A task fails in the midst of its rows; the driver dies after the commit.
    (tmp_path / "raise-1").touch()
    (tmp_path / "after-commit-1").touch()
    with driver(version, servers, topic, tmp_path) as killed:
        killed.reaches("reached")
    assert not (tmp_path / "checkpoint" / "commits" / "1").exists()
    produce(servers, topic, _values(MORE))
    (tmp_path / "enough").touch()
    with driver(version, servers, topic, tmp_path) as last:
        last.ends()
    assert not (tmp_path / "raise-1").exists()

    assert _ids(servers, f"{topic}-target") == Counter([*MEANWHILE, *MORE])
    assert _ids(servers, f"{topic}-target-batch") == Counter(range(100))
    told = json.loads((tmp_path / "told").read_text())
    assert told["version"].startswith(f"{version}.")
    assert told["empty"] == 0
    everything = [*BEFORE, *MEANWHILE, *MORE]
    assert told["available_now"] == everything
    in_two = Counter(
        int(each.value() or b"") for each in consume(servers, topic) if (each.partition() or 0) < 2
    )
    assert told["read"] == sorted(in_two)
    if version < "4.2":
        line = last_line(RuntimeError(told["limited"]))
        assert line.startswith("[NEEDS_NEWER_SPARK] 'maxOffsetsPerTrigger' ")
    else:
        assert told["limited"] == "ended"
