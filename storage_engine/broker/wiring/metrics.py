"""Builds the parts that export a broker's metrics to Prometheus, where they are configured."""

from dataclasses import dataclass

from storage_engine.broker.metrics.coordinator_figures import GroupFigures, TransactionFigures
from storage_engine.broker.metrics.end_offsets import EndOffsets
from storage_engine.broker.metrics.exposition import media_type_for, prepare
from storage_engine.broker.metrics.process_figures import (
    CertificateFigures,
    DiskFigures,
    LoopFigures,
)
from storage_engine.broker.metrics.replica_figures import (
    ClusterFigures,
    ControllerFigures,
    ReplicaFigures,
)
from storage_engine.broker.metrics.request_figures import RequestCounts, ServerFigures
from storage_engine.broker.metrics.schema_figures import SchemaFigures
from storage_engine.broker.metrics.scrapes import Scrapes
from storage_engine.broker.settings.config import MetricsConfig
from storage_engine.broker.wiring.broker_parts import BrokerParts
from storage_engine.broker.wiring.listeners import TlsByListener
from storage_engine.core.ports import Scheduler
from storage_engine.net.http_listener import HttpListener
from storage_engine.net.server import Server
from storage_engine.zookeeper.session import ZooKeeperSession

PATH = "/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsParts:
    """The listener, and the parts with periodic work of their own."""

    listener: HttpListener
    scheduler: Scheduler
    counts: RequestCounts
    loop_figures: LoopFigures
    disk_figures: DiskFigures

    async def start(self) -> None:
        """Raises HeadraceError when the address can't be listened on."""
        # The import takes a tenth of a second, in which the loop goes on.
        await self.listener.loop.run_in_executor(None, prepare)
        await self.listener.start()
        self.counts.start(self.scheduler)
        self.loop_figures.start()
        self.disk_figures.start()

    def close(self) -> None:
        self.listener.close()


def build_metrics(
    parts: BrokerParts,
    server: Server,
    tls: TlsByListener,
    session: ZooKeeperSession,
    config: MetricsConfig,
) -> MetricsParts:
    """Build the parts; requests are counted from now on, but nothing listens yet."""
    ports, replicas = parts.ports, parts.replicas
    counts = RequestCounts(ports.work_ns)
    counts.count_all(parts.table)
    loop_figures = LoopFigures(server, ports.scheduler, ports.clock)
    disk_figures = DiskFigures(ports.logs.dirs, ports.scheduler, ports.background)
    metadata = parts.cluster.metadata
    scrapes = Scrapes(
        {
            "replicas": ReplicaFigures(replicas.manager, replicas.fetchers, ports.clock),
            "requests": _server_figures(counts, server, parts),
            "cluster": ClusterFigures(metadata, ports.metadata_store, ports.clock, session),
            "controller": ControllerFigures(parts.cluster.controller),
            "groups": GroupFigures(
                parts.coordinators.groups,
                replicas.manager,
                EndOffsets(metadata, ports.transport, ports.clock),
                ports.clock,
            ),
            "transactions": TransactionFigures(parts.coordinators.transactions, ports.clock),
            "schemas": SchemaFigures(parts.schemas.log, parts.schemas.writers),
            "loop": loop_figures,
            "disks": disk_figures,
            "certificates": CertificateFigures(
                lambda: {
                    name: int(each.profile.key_store.valid_until.timestamp() * 1000)
                    for name, each in tls.items()
                },
                ports.clock,
            ),
        }
    )
    advertised = tuple(each.host for each in ports.config.listeners.advertised)
    listener = HttpListener(
        server.loop,
        host=config.host,
        port=config.port,
        path=PATH,
        media_type_for=media_type_for,
        make_text=scrapes.text,
        names=(*config.names, *advertised),
    )
    return MetricsParts(
        listener=listener,
        scheduler=ports.scheduler,
        counts=counts,
        loop_figures=loop_figures,
        disk_figures=disk_figures,
    )


def _server_figures(counts: RequestCounts, server: Server, parts: BrokerParts) -> ServerFigures:
    requests = parts.requests
    return ServerFigures(
        counts,
        server,
        requests.fetch_sessions,
        requests.fetch_waits,
        requests.cold_reads,
        parts.quotas,
    )
