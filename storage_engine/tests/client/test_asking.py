"""A coordinator is found, remembered, and asked until it has answered."""

import pytest

from storage_engine.client.asking import (
    GROUP,
    MAX_REMEMBERED,
    TRANSACTION,
    ask_coordinator,
    error_from,
)
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.protocol.messages.find_coordinator import FindCoordinatorResponse
from storage_engine.protocol.messages.heartbeat import API, HeartbeatRequest, HeartbeatResponse
from storage_engine.tests.client.support.coordinators import found_at


class Coordinator:
    """Brokers that answer for it: `codes` for the next requests, then yes."""

    def __init__(self, fake):
        self.broker, self.codes, self.asked = 1, [], []
        self._fake = fake
        fake.admin = self._answer

    def _answer(self, broker_id, api, message):
        if api == "FindCoordinator":
            return found_at(self._fake, self.broker)
        self.asked.append(broker_id)
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if broker_id != self.broker:
            code = ErrorCode.NOT_COORDINATOR
        return HeartbeatResponse(error_code=int(code))


@pytest.fixture
def coordinator(fake):
    return Coordinator(fake)


def ask(cluster, key="g", kind=GROUP, deadline_ms=None):
    request = HeartbeatRequest(group_id=key)
    return ask_coordinator(
        cluster,
        kind,
        key,
        API,
        request,
        lambda answer: error_from(answer.error_code),
        deadline_ms=deadline_ms,
    )[0]


def test_a_coordinator_is_looked_up_once_until_it_is_another(fake, cluster, coordinator):
    assert [ask(cluster), ask(cluster)] == [1, 1]
    assert fake.count("FindCoordinator") == 1
    coordinator.broker = 2
    assert [ask(cluster), ask(cluster)] == [2, 2]
    assert coordinator.asked == [1, 1, 1, 2, 2]
    assert fake.count("FindCoordinator") == 2
    ask(cluster, "another")
    ask(cluster, kind=TRANSACTION)
    assert fake.count("FindCoordinator") == 4


def test_one_that_is_busy_is_asked_again_and_not_looked_up(fake, cluster, coordinator):
    coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
    ask(cluster)
    assert coordinator.asked == [1, 1]
    assert fake.count("FindCoordinator") == 1


def test_of_many_keys_the_coordinators_of_some_are_remembered(cluster, coordinator):
    for number in range(MAX_REMEMBERED + 1):
        ask(cluster, f"group-{number}")
    assert len(cluster.coordinators) == MAX_REMEMBERED
    assert (GROUP, "group-0") not in cluster.coordinators


def test_a_cluster_without_a_coordinator_is_an_error_that_names_the_group(fake, cluster):
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    fake.admin = lambda *_: FindCoordinatorResponse(error_code=int(code))
    with pytest.raises(DeadlineExceededError, match="there is no coordinator for group 'g'"):
        ask(cluster, deadline_ms=1_000)


def test_a_final_error_is_raised_at_once(cluster, coordinator):
    coordinator.codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaError):
        ask(cluster)
    assert coordinator.asked == [1]
