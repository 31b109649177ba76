"""Every public method of the clients, called in a signal handler, by a second thread, in the child
of a fork, when the client is closed and while it is being closed: it works, or fails with one line.
"""

import json
import random
import sys

import pytest

from integration_tests.clients import used_anywhere
from integration_tests.clients.used_anywhere import CLIENTS, SITUATIONS, TOPIC
from integration_tests.forks.forked import run
from integration_tests.support.cluster_support import create_topic
from storage_engine.client import Producer
from storage_engine.tests.sampling import ALL_FAULTS, SEED

SAMPLE = 3
TIMEOUT_S = 600


@pytest.fixture(scope="module")
def servers(cluster):
    create_topic(cluster, TOPIC, config={"retention.ms": "-1"})
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for _ in range(100):
            producer.send(TOPIC, b"x")
    return cluster.bootstrap_servers


def used(servers, client, *methods):
    module = used_anywhere.__name__
    done = run([sys.executable, "-m", module, servers, client, *methods], timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.decode().splitlines()[-1])


@pytest.mark.parametrize("client", CLIENTS)
def test_the_table_has_every_public_method(client):
    kind, methods, *_ = CLIENTS[client]
    attributes = {"isolation", "arrow_schema"}
    assert used_anywhere.public(kind) - attributes == set(methods)


@pytest.mark.parametrize("client", CLIENTS)
def test_each_call_works_or_fails_with_one_line_in_each_situation(servers, client):
    methods = sorted(CLIENTS[client][1])
    if not ALL_FAULTS:
        rng = random.Random(f"{SEED}{client}")
        methods = sorted({*rng.sample(methods, min(SAMPLE, len(methods))), "close"})
    found = used(servers, client, *methods)
    assert len(found) == len(methods) * len(SITUATIONS)
    assert {what: told for what, told in found.items() if any("??" in each for each in told)} == {}


def test_the_asyncio_ones_say_it_after_a_fork_and_when_they_are_closed(servers):
    used(servers, "asyncio")
