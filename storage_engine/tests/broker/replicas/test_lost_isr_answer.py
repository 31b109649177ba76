"""A write of the ISR that was done, though its answer was lost. Source: R-REP4, R-CTL8."""

from collections.abc import Iterator

import pytest

from storage_engine.tests.broker.controller.reassigning import TP, Moving


@pytest.fixture
def cluster(tmp_path) -> Iterator[Moving]:
    made = Moving(tmp_path, 4)
    yield made
    made.close()


def test_the_controller_hears_of_the_last_replica_in_sync_all_the_same(cluster):
    """It waits for the new replicas to be in the ISR; the leader finds out by reading that they
    are, and has to say so."""
    assert cluster.controller is not None
    leader, second, third = (b.id for b in cluster.brokers if b is not cluster.controller)
    cluster.create((leader, second))
    cluster.produced(TP, b"first")
    cluster.wait_in_sync(TP, leader, second)
    target = (leader, second, third)
    cluster.ask_by_node({TP: target})
    cluster.loop.run_until(lambda: cluster.assigned(TP) == target)
    cluster[leader].session.lose_answers = 1
    cluster.wait_in_sync(TP, *target)
    assert cluster[leader].session.lose_answers == 0, "the answer that was lost is that of the ISR"
    cluster.wait_done(target)
