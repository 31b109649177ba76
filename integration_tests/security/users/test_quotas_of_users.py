"""Quotas of users who have logged in, of client ids and of both, as Kafka's system tests have them:
once what stands for all of a kind, and once what is set for one of them, which counts more."""

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from integration_tests.security.secured_cluster import SecuredCluster, secured_cluster
from integration_tests.support.cluster_support import wait_until
from integration_tests.support.measured_rates import check_is_within, produced_bytes_per_s
from storage_engine.client import Admin
from storage_engine.core.quotas import DEFAULT, QuotaEntity
from storage_engine.tests.sampling import ALL_FAULTS

BOUND, OTHER_BOUND = 400_000, 90_000
"""Bytes a second: what counts, and what counts less."""
CLIENT_ID = "of-quotas"

CELLS = {
    "client-id": (QuotaEntity(client_id=DEFAULT), QuotaEntity(client_id=CLIENT_ID)),
    "user": (QuotaEntity(user=DEFAULT), QuotaEntity(user="bob")),
    "user-and-client-id": (QuotaEntity("bob", DEFAULT), QuotaEntity("bob", CLIENT_ID)),
}
"""What stands for all, and what stands for one."""

SAMPLE = [("user-and-client-id", True)]
EVERY = [(kind, overridden) for kind in CELLS for overridden in (False, True)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[SecuredCluster]:
    with secured_cluster(
        tmp_path_factory.mktemp("quotas"), more={"default.replication.factor": "1"}
    ) as made:
        yield made


@pytest.fixture
def quotas(cluster) -> Iterator["Quotas"]:
    made = Quotas(cluster)
    yield made
    made.remove_all()


class Quotas:
    """Those of one test."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self._config = {"bootstrap.servers": cluster.brokers.bootstrap("OPEN")}
        self._set: list[tuple[QuotaEntity, str]] = []

    def set(self, entity: QuotaEntity, name: str, value: float) -> None:
        with Admin(self._config) as admin:
            admin.alter_client_quotas(entity, {name: value})
            self._set.append((entity, name))
            wait_until(
                lambda: any(q.entity == entity for q in admin.describe_client_quotas()),
                f"the broker goes by the quota of {entity}",
            )

    def remove_all(self) -> None:
        with Admin(self._config) as admin:
            for entity, name in self._set:
                admin.alter_client_quotas(entity, {}, remove=[name])


@pytest.mark.parametrize(("kind", "is_overridden"), EVERY if ALL_FAULTS else SAMPLE)
def test_a_user_writes_as_much_as_the_quota_says_that_is_nearest_to_it(
    cluster, quotas, kind: str, is_overridden: bool
) -> None:
    for_all, for_one = CELLS[kind]
    quotas.set(for_all, "producer_byte_rate", OTHER_BOUND if is_overridden else BOUND)
    if is_overridden:
        quotas.set(for_one, "producer_byte_rate", BOUND)
    # One of somebody else's bounds nobody here.
    quotas.set(QuotaEntity(user="carol"), "producer_byte_rate", 1_000)
    check_is_within(lambda: produced_bytes_per_s(cluster.bob("SASL"), "t", CLIENT_ID), BOUND)


def test_topics_that_are_made_by_asking_for_them_count_as_made(cluster, quotas) -> None:
    """KIP-599: who asks for topics that are not there, which makes them, waits as if it had created
    them."""
    producer = Producer({**cluster.bob("SASL"), "log_level": "0"})

    def ask(most: int, *, until_s: float = 60) -> tuple[int, float]:
        """Asks for so many new topics, or until so much time is over; how many, and how long."""
        count, began = 0, time.monotonic()
        while count < most and time.monotonic() < began + until_s:
            producer.list_topics(f"asked-{uuid4().hex[:8]}", timeout=30)
            count += 1
        return count, time.monotonic() - began

    free, free_s = ask(15)
    quotas.set(QuotaEntity(user="bob"), "controller_mutation_rate", 1)
    # Ten seconds' worth is saved; while it asks it may make one more a second.
    more, slowed_s = ask(15 + 2 * int(free_s), until_s=3 + free_s)
    assert slowed_s > 3 + free_s
    made = producer.list_topics(timeout=30).topics
    assert len([name for name in made if name.startswith("asked-")]) == free + more
