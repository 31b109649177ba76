"""A producer of the fake cluster."""

import pytest

from storage_engine.client import Producer
from storage_engine.core.errors import HeadraceError


@pytest.fixture
def produce(fake):
    """A producer of the fake cluster, with settings as given."""
    made = []

    def make(settings=None, **others):
        config = {
            "bootstrap.servers": fake.bootstrap_servers,
            "request.timeout.ms": 2000,
            "delivery.timeout.ms": 20_000,
            "linger.ms": 0,
        }
        made.append(Producer(config | (settings or {}), **others))
        return made[-1]

    yield make
    for producer in made:
        try:
            producer.close(0)
        except HeadraceError:
            continue
