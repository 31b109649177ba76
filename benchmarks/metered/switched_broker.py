"""A broker whose metrics can be switched off and on while it runs, to be measured with them and
without in one process: two processes differ by more than metrics cost.

    python -m benchmarks.metered.switched_broker FILE.properties

SIGUSR1 switches them off, SIGUSR2 on. Only the metrics of requests are switched; a broker counts
the others whether anybody reads them or not.
"""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.support.brokers import HOST, free_ports, running_brokers
from storage_engine.core.settings.settings import METRICS_LISTENER

if TYPE_CHECKING:
    from storage_engine.broker.settings.config import MetricsConfig
    from storage_engine.broker.wiring.broker_parts import BrokerParts
    from storage_engine.broker.wiring.listeners import TlsByListener
    from storage_engine.broker.wiring.metrics import MetricsParts
    from storage_engine.net.server import Server
    from storage_engine.zookeeper.session import ZooKeeperSession

OFF, ON = signal.SIGUSR1, signal.SIGUSR2
SWITCH_S = 0.005
"""The time in which the loop handles a signal, in its next turn."""

_MODULE = ("benchmarks.metered.switched_broker",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedBroker:
    """A running broker whose metrics can be switched."""

    port: int
    pid: int
    metrics_url: str

    @property
    def servers(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def cpu_s(self) -> float:
        return seconds_of([self.pid])

    def switch(self, *, on: bool) -> None:
        os.kill(self.pid, ON if on else OFF)
        time.sleep(SWITCH_S)


@contextlib.contextmanager
def switched_broker(folder: Path) -> Iterator[SwitchedBroker]:
    """Run a cluster of this broker within the block, in a new folder."""
    port, metrics_port = free_ports(2)
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        METRICS_LISTENER: f"{HOST}:{metrics_port}",
    }
    running = running_brokers(folder, "the broker", f"{HOST}:{port}", [settings], _MODULE)
    with running as (pid,):
        yield SwitchedBroker(
            port=port, pid=pid, metrics_url=f"http://{HOST}:{metrics_port}/metrics"
        )


def main() -> int:
    """Run the broker."""
    from storage_engine.broker.wiring import metrics
    from storage_engine.tools.commands import broker

    build = metrics.build_metrics

    def build_switched(
        parts: "BrokerParts",
        server: "Server",
        tls: "TlsByListener",
        session: "ZooKeeperSession",
        config: "MetricsConfig",
    ) -> "MetricsParts":
        made = build(parts, server, tls, session, config)
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
