"""Clients, ours too, come by every way in; where something is wrong, they say what."""

import re
import shutil
from collections.abc import Iterator

import pytest

from integration_tests.security.clients import (
    aiokafka_client,
    java_client,
    kafka_python_client,
    kcat_client,
    librdkafka_client,
    our_client,
)
from integration_tests.security.clients.cells import CELLS, SCRAM_256, TOKEN, Cell
from integration_tests.security.clients.clients_cluster import (
    BOTH,
    BRIEF,
    ClientsCluster,
    clients_cluster,
)
from integration_tests.security.clients.java_client import JavaClient
from integration_tests.support.java_clients import NEWEST, SHA256
from storage_engine.tests.sampling import ALL_FAULTS, in_full


@pytest.fixture(scope="module", params=[BOTH, "TLSv1.2"] if ALL_FAULTS else [BOTH])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientsCluster]:
    with clients_cluster(tmp_path_factory.mktemp("clients"), protocols=request.param) as made:
        yield made


def check(client, cluster: ClientsCluster, cell: Cell) -> None:
    way = cluster.way(cell)
    if cell.problem is None:
        value = f"{client.__name__}, {cell}".encode()
        assert client.writes_and_reads(way, value) == value
    else:
        told = client.is_told(way)
        assert re.search(client.SAYS[cell.problem], told), told


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_librdkafka(cluster, cell):
    check(librdkafka_client, cluster, cell)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_kafka_python(cluster, cell):
    check(kafka_python_client, cluster, cell)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_aiokafka(cluster, cell):
    check(aiokafka_client, cluster, cell)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_ours(cluster, cell):
    check(our_client, cluster, cell)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("cell", [each for each in CELLS if each.mechanism != TOKEN], ids=str)
def test_kcat(cluster, cell):
    check(kcat_client, cluster, cell)


# Java: all cells by one JVM, which is asked for each.


@pytest.fixture(scope="module", params=sorted(SHA256) if ALL_FAULTS else [NEWEST])
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> JavaClient:
    return JavaClient(request.param, tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="module")
def java_says(java: JavaClient, cluster: ClientsCluster) -> dict[str, str]:
    return java.outcomes({str(cell): cluster.way(cell) for cell in CELLS})


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_java(java_says, cell):
    told = java_says[str(cell)]
    wanted = "^written and read$" if cell.problem is None else java_client.SAYS[cell.problem]
    assert re.search(wanted, told), told


@in_full
def test_java_logs_in_again_over_the_same_connection(java, cluster):
    """A session at this listener lasts two seconds."""
    way = cluster.way(Cell(SCRAM_256, asks=False), listener=BRIEF)
    told = java.outcomes({"again": way}, for_ms=6_000)["again"]
    assert told.startswith("written, connections closed ")
    assert int(told.rpartition(" ")[2]) <= 1, "but for the one to the first broker asked"


@in_full
@pytest.mark.parametrize("client", [kafka_python_client, aiokafka_client])
def test_who_does_not_log_in_again_connects_again_and_goes_on(cluster, client):
    """These clients don't know KIP-368: their connection ends with the session of two seconds."""
    way = cluster.way(Cell(SCRAM_256, asks=False), listener=BRIEF)
    assert client.writes_on(way, for_s=5) > 100
