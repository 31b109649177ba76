"""`HandlerTable.serve` takes handlers by name; each is written for the API of that name."""

from functools import partial
from inspect import signature
from typing import get_type_hints

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.protocol.apis.registry import module_of


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    cluster = SimulatedCluster(tmp_path_factory.mktemp("cluster"), 1)
    yield cluster[1].parts.table
    cluster.close()


def test_every_handler_takes_the_request_of_its_api(table):
    strangers = []
    for key in table:
        handler = table.get(key).handler
        while isinstance(handler, partial):
            handler = handler.func
        *_, request = signature(handler).parameters
        asked = get_type_hints(handler)[request]
        module = module_of(key)
        if asked not in vars(module).values():
            strangers.append((module.__name__, asked))
    assert strangers == []
