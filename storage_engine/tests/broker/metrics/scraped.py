"""Scrapes of a simulated broker."""

from prometheus_client.parser import text_string_to_metric_families

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.metrics.coordinator_figures import GroupFigures, TransactionFigures
from storage_engine.broker.metrics.end_offsets import EndOffsets
from storage_engine.broker.metrics.replica_figures import ControllerFigures, ReplicaFigures
from storage_engine.broker.metrics.schema_figures import SchemaFigures
from storage_engine.broker.metrics.scrapes import FigureSource


def sources(cluster: SimulatedCluster, broker: int) -> dict[str, FigureSource]:
    parts = cluster[broker].parts
    replicas, clock = parts.replicas, parts.ports.clock
    return {
        "replicas": ReplicaFigures(replicas.manager, replicas.fetchers, clock),
        "controller": ControllerFigures(parts.cluster.controller),
        "groups": GroupFigures(
            parts.coordinators.groups,
            replicas.manager,
            EndOffsets(parts.cluster.metadata, parts.ports.transport, clock),
            clock,
        ),
        "transactions": TransactionFigures(parts.coordinators.transactions, clock),
        "schemas": SchemaFigures(parts.schemas.log, parts.schemas.writers),
    }


def values(text: str) -> dict[str, float]:
    """Sums over the labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found
