"""A broker whose metrics can be switched off and on while it runs, to be measured with them and
without in one process: two processes differ by more than metrics cost.

    python -m benchmarks.metered.switched_broker FILE.properties

SIGUSR1 switches them off, SIGUSR2 on. Only requests are meant: what is counted elsewhere is counted
whether anybody reads it or not.
"""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.beside_kafka.tethered import check_runs, tethered
from storage_engine.client import Admin
from storage_engine.core.errors import HeadraceError
from storage_engine.core.settings.settings import METRICS_LISTENER
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.broker_settings import write_settings
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.zookeeper.embedded import start_embedded

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"

OFF, ON = signal.SIGUSR1, signal.SIGUSR2
SWITCH_S = 0.005
"""The loop takes up a signal in its next turn."""

_START_S = 60.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedBroker:
    """One that runs."""

    port: int
    pid: int
    metrics_url: str

    @property
    def servers(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def cpu_s(self) -> float:
        """Of all its threads, in nanosecond steps: /proc has steps of 10 ms."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def switch(self, *, on: bool) -> None:
        os.kill(self.pid, ON if on else OFF)
        time.sleep(SWITCH_S)


@contextlib.contextmanager
def switched_broker(folder: Path, settings: Mapping[str, str]) -> Iterator[SwitchedBroker]:
    """A cluster of this broker is up within the block, in a new folder."""
    folder.mkdir()
    port = find_free_port(HOST, avoid=[])
    metrics_port = find_free_port(HOST, avoid=[port])
    with contextlib.ExitStack() as stack:
        zookeeper = start_embedded(folder / "zookeeper")
        stack.callback(zookeeper.stop)
        file, log = folder / "broker.properties", folder / "broker.log"
        own = {
            "broker.id": "1",
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": zookeeper.connect,
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            METRICS_LISTENER: f"{HOST}:{metrics_port}",
        }
        write_settings(file, {**own, **settings})
        command = [sys.executable, "-P", "-m", "benchmarks.metered.switched_broker", str(file)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = stack.enter_context(
            tethered(command, log=log, folder=folder, environment=environment)
        )
        broker = SwitchedBroker(
            port=port, pid=process.pid, metrics_url=f"http://{HOST}:{metrics_port}/metrics"
        )
        _wait(broker, process, log)
        yield broker


def _wait(broker: SwitchedBroker, process: Any, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        check_runs(process, "a broker of Headrace", log)
        try:
            with Admin({"bootstrap.servers": broker.servers}) as admin:
                admin.describe_cluster()
                return
        except HeadraceError:
            pass
        if time.monotonic() > deadline:
            raise CommandError(f"the broker is not up after {_START_S:.0f} s; see '{log}'")
        time.sleep(_POLL_S)


def main() -> int:
    """The broker's process."""
    from storage_engine.broker.wiring import metrics
    from storage_engine.tools.commands import broker

    build = metrics.build_metrics

    def build_switched(parts: Any, server: Any, *rest: Any) -> Any:
        made = build(parts, server, *rest)
        table, counts = parts.table, made.counts

        def switch(on: bool) -> None:
            table.count(lambda spec: counts.by_name.get(spec.name) if on else None)

        server.loop.add_signal_handler(OFF, switch, False)
        server.loop.add_signal_handler(ON, switch, True)
        return made

    setattr(metrics, build.__name__, build_switched)
    parser = argparse.ArgumentParser()
    broker.add_arguments(parser)
    return broker.run(parser.parse_args(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
