"""What a scrape tells of a registry's schemas."""

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.metrics.scrapes import Scrapes
from storage_engine.tests.broker.metrics.scraped import sources, values
from storage_engine.tests.broker.schemas.schemas_support import (
    WrittenSchemas,
    create_schemas,
    text_of,
)
from storage_engine.tests.broker.schemas.test_writers import found
from storage_engine.tests.broker.support import cluster_fixture

cluster = cluster_fixture(brokers=1, prepare=create_schemas, default_replication_factor="1")


def told(cluster: SimulatedCluster) -> dict[str, float]:
    text = "".join(Scrapes(sources(cluster, 1)).text(""))
    return {
        name.removeprefix("headrace_schemas_"): value
        for name, value in values(text).items()
        if name.startswith("headrace_schemas_")
    }


def test_known_schemas_and_ids_that_nobody_gave_are_counted(cluster):
    assert set(told(cluster).values()) == {0}
    written = WrittenSchemas(cluster)
    known = written.register("a", text_of("A", a="int"))
    written.register("b", text_of("B"))
    found(cluster, known)
    before = told(cluster)
    assert (before["known"], before["unknown_ids_total"]) == (2, 0)
    assert before["next_offset"] == len(written.log.records)
    assert before["looks_total"] == 1
    found(cluster, known, 4711, 4712)
    found(cluster, known)
    after = told(cluster)
    assert (after["unknown_ids_total"], after["looks_total"]) == (2, 2)
