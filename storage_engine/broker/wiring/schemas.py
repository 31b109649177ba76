"""Builds what a broker knows of a registry's schemas."""

from dataclasses import dataclass

from storage_engine.broker.schemas.schemas_log import SchemasLog
from storage_engine.broker.schemas.topic_schema_ids import TopicSchemaIds
from storage_engine.broker.schemas.writers import Writers
from storage_engine.broker.wiring.parts import BrokerPorts, ClusterParts


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaParts:
    """Nothing of it runs before a client sends or asks for records of Avro."""

    log: SchemasLog
    writers: Writers
    topic_ids: TopicSchemaIds


def build_schemas(ports: BrokerPorts, cluster: ClusterParts) -> SchemaParts:
    log = SchemasLog(
        ports.config.text("schemas.topic"),
        metadata=cluster.metadata,
        transport=ports.transport,
        scheduler=ports.scheduler,
        clock=ports.clock,
        background=ports.background,
    )
    return SchemaParts(
        log=log, writers=Writers(log, ports.background), topic_ids=TopicSchemaIds(log)
    )
