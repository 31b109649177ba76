"""The keyed sink with a real Spark: each fault at each stage, with each database. The table has
every record once, and at any moment only whole micro-batches. Source: R-SPARK4.

All cases with HEADRACE_FAULTS=full, else one that HEADRACE_SEED picks.
"""

import shutil
from collections.abc import Iterator

import pytest

from connector.database import keyed_table
from connector.spark_version import limits_micro_batches
from integration_tests.keyed_sink.databases import (
    SERVERS,
    database_url,
    mariadb_server,
    postgres_server,
)
from integration_tests.keyed_sink.keyed_faults import (
    DISTURBS_BROKERS,
    OF_SERVERS,
    OWN_DRIVER,
    Case,
    Fault,
    all_cases,
    sample,
)
from integration_tests.keyed_sink.keyed_runs import (
    STRUCK,
    Looker,
    Runs,
    Struck,
    Surroundings,
    wrongs,
)
from integration_tests.keyed_sink.spark_keyed_driver import LAST, PER_BATCH, FaultyTable, copy
from integration_tests.spark.faulty_sink import FOLDER
from integration_tests.support.cluster_support import (
    HasBootstrapServers,
    create_topic,
    running_cluster,
    wait_until,
)
from integration_tests.support.fault_proxy import FaultProxy
from integration_tests.support.proxied_cluster import ProxiedCluster, running_proxied_cluster
from integration_tests.support.spark_support import produce
from storage_engine.tests.sampling import ALL_FAULTS, SEED

__all__ = ["database_url", "mariadb_server", "postgres_server"]

CASES = all_cases() if ALL_FAULTS else sample(SEED)
BATCHES = 3
GROWN = 700


@pytest.fixture(scope="module")
def brokers(tmp_path_factory) -> Iterator[HasBootstrapServers]:
    """One broker, unless the case needs more."""
    folder = tmp_path_factory.mktemp("cluster")
    if any(case.fault in DISTURBS_BROKERS for case in CASES):
        with running_proxied_cluster(folder) as proxied:
            yield proxied
    else:
        with running_cluster(folder, brokers=1) as plain:
            yield plain


@pytest.fixture
def cluster(brokers) -> Iterator[HasBootstrapServers]:
    """A cluster all of whose brokers run again after the case."""
    yield brokers
    if isinstance(brokers, ProxiedCluster):
        brokers.restore()


@pytest.fixture
def around(request, case: Case, cluster, topic) -> Iterator[Surroundings]:
    """The processes and connections that the case can disturb."""
    proxied = cluster if isinstance(cluster, ProxiedCluster) else None
    if case.fault not in OF_SERVERS:
        yield Surroundings(topic=topic, brokers=proxied)
        return
    server = request.getfixturevalue(SERVERS[case.database])
    with FaultProxy((server.host, server.port)) as proxy:
        yield Surroundings(topic=topic, brokers=proxied, server=server, to_server=proxy)


@pytest.mark.parametrize(
    ("case", "database_url"), [(case, case.database) for case in CASES], indirect=["database_url"],
    ids=map(str, CASES),
)  # fmt: skip
def test_every_record_is_there_once_whatever_goes_wrong(
    spark, cluster, topic, around, database_url, tmp_path, monkeypatch, case
):
    servers = cluster.bootstrap_servers
    replicas = 3 if isinstance(cluster, ProxiedCluster) else 1
    create_topic(cluster, topic, partitions=LAST + 1, replication_factor=replicas)

    def write(first: int, last: int) -> None:
        ids = ({"value": b"%d" % n, "partition": n % (LAST + 1)} for n in range(first, last))
        produce(servers, topic, ids)

    ids = BATCHES * PER_BATCH
    run = Runs(servers, topic, database_url, tmp_path)
    # The replay is in the session of the tests.
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(keyed_table, "KeyedTable", FaultyTable)
    url = database_url
    if around.to_server is not None:
        url = around.server.url(around.to_server.port)

    def again(min_partitions: int = LAST + 1) -> None:
        copy(spark, servers, topic, url, tmp_path, min_partitions=min_partitions)

    # A Spark that limits no micro-batch makes one of all that was written since the last.
    there = ids if limits_micro_batches() else (STRUCK + 1) * PER_BATCH
    write(0, STRUCK * PER_BATCH)
    if there < ids:
        again()
    write(STRUCK * PER_BATCH, there)
    struck = Struck(case, run, again, around)
    with Looker(run.engine) as looker:
        struck.strike(lambda: write(ids, ids + GROWN))
        if there < ids:
            # It ends after the micro-batch that it repeats.
            again(struck.partitions)
            write(there, ids)
        again(struck.partitions)
        whole, counts = run.rows(), run.batches()
        wait_until(lambda: frozenset(counts.items()) in looker.looks, "a last look")
    assert sorted(whole) == list(range(ids + GROWN * (case.fault is Fault.GROWTH)))
    # What was committed is not written again: it would have other numbers.
    assert struck.kept.items() <= whole.items()
    assert wrongs(looker.looks, counts) == []

    if case.fault in OWN_DRIVER:
        # They take long enough.
        return
    # Another query, as it counts; the same records, as their keys tell.
    shutil.rmtree(tmp_path / "checkpoint")
    again()
    rewound = run.rows()
    assert sorted(rewound) == sorted(whole) and rewound != whole
