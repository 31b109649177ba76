"""Clients that we did not write come by every way in; where something is wrong, they say what."""

import re
import shutil
from collections.abc import Iterator

import pytest

from integration_tests.security.clients import (
    aiokafka_client,
    kafka_python_client,
    kcat_client,
    librdkafka_client,
)
from integration_tests.security.clients.cells import CELLS, TOKEN, Cell
from integration_tests.security.clients.clients_cluster import ClientsCluster, clients_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientsCluster]:
    with clients_cluster(tmp_path_factory.mktemp("clients")) as made:
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


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("cell", [each for each in CELLS if each.mechanism != TOKEN], ids=str)
def test_kcat(cluster, cell):
    check(kcat_client, cluster, cell)
