"""What each request of a client with quotas counts for, and how long its connection waits."""

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.quotas.client_usage import (
    CREATE_TOPICS,
    FIRST_STRICT_VERSION,
    METADATA,
    ClientUsage,
    RequestQuotas,
)
from storage_engine.broker.settings.config_store import ConfigEntity
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.quotas import QuotaEntity, QuotaKey
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProduceResponse
from storage_engine.protocol.apis.registry import spec_for
from storage_engine.tests.broker.support import QuietConnection

STRICT = FIRST_STRICT_VERSION[CREATE_TOPICS]


class Quotas:
    """The quotas of alice over simulated time."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.usage = ClientUsage(self.loop)
        self.requests = RequestQuotas(self.usage, self.loop)
        self.connection = QuietConnection()

    def set(self, **quotas: str) -> None:
        self.usage.take(ConfigEntity.user("alice"), quotas)

    def of(self, spec, version: int = 7, size: int = 0):
        return self.requests.of(self.connection, "app", spec, version, size)


@pytest.fixture
def quotas() -> Quotas:
    return Quotas()


def test_a_request_that_no_quota_is_about_has_none(quotas):
    quotas.set(producer_byte_rate="100", connection_creation_rate="1")
    assert quotas.of(FETCH) is None
    assert quotas.of(PRODUCE) is not None
    quotas.set()
    assert quotas.of(PRODUCE) is None
    assert not quotas.usage.bounds_requests
    assert list(quotas.usage.known()) == []


def test_a_connection_waits_until_the_bytes_are_paid_for_and_its_answer_says_so(quotas):
    quotas.set(producer_byte_rate="100")
    assert quotas.of(PRODUCE, size=100).answered(ProduceResponse([])).throttle_time_ms == 0
    quota = quotas.of(PRODUCE, size=50)
    assert quota.answered(ProduceResponse([])).throttle_time_ms == 501
    assert quotas.connection.holds == 1
    quotas.loop.run_for(500)
    assert quotas.connection.holds == 1
    quotas.loop.run_for(1)
    assert quotas.connection.holds == 0
    figures = quotas.requests.throttles[QuotaKey.PRODUCED]
    assert (figures.count, figures.wait_ms) == (1, 501)


def test_a_client_that_never_pauses_has_its_rate_over_half_a_minute(quotas):
    rate, size, seconds = 400_000, 50_000, 30
    quotas.set(producer_byte_rate=str(rate))
    written = 0
    until_ms = quotas.loop.monotonic_ms() + 1000 * seconds
    while quotas.loop.monotonic_ms() < until_ms:
        if quotas.connection.holds:
            quotas.loop.run_for(1)
        else:
            quotas.of(PRODUCE, size=size)
            written += size
    # Besides, a burst of a second, and the request that overdraws it.
    assert 0.99 * rate * seconds < written <= rate * (seconds + 1) + size


def test_of_several_quotas_the_longest_wait_counts(quotas):
    quotas.set(producer_byte_rate="100", request_percentage="10")
    quota = quotas.of(PRODUCE, size=200)
    quota.worked(1_100_000_000)
    assert quota.wait_ms == 10_001
    quota.worked(0)
    assert quotas.connection.holds == 2
    quotas.loop.run_for(10_001)
    assert quotas.connection.holds == 0


def test_a_fetch_is_cut_to_what_may_be_read_in_a_second_and_pays_for_what_is_sent(quotas):
    quotas.set(consumer_byte_rate="100")
    quota = quotas.of(FETCH)
    large = FetchRequest(0, 1, 1 << 20, [FetchPartition("t", 0, 0, 1 << 20)])
    assert quota.within(large).max_bytes == 100
    small = large._replace(max_bytes=99)
    assert quota.within(small) is small
    rows = [FetchPartitionResponse("t", n, records=b"x" * 75) for n in range(2)]
    rows.append(FetchPartitionResponse("t", 2))
    assert quota.answered(FetchResponse(rows)).throttle_time_ms == 501


@pytest.mark.parametrize(("key", "version"), [(CREATE_TOPICS, STRICT - 1), (METADATA, 12)])
def test_without_credit_topics_are_made_and_the_client_waits(quotas, key, version):
    quotas.set(controller_mutation_rate="1")
    for _ in range(2):
        quota = quotas.of(spec_for(key), version)
        quota.mutate(11)
    assert quota.wait_ms == 12_001


def test_without_credit_a_client_that_knows_the_error_makes_no_topic(quotas):
    quotas.set(controller_mutation_rate="1")
    quotas.of(spec_for(CREATE_TOPICS), STRICT).mutate(11)
    quotas.loop.run_for(1_001)
    quotas.of(spec_for(CREATE_TOPICS), STRICT).mutate(1)
    quota = quotas.of(spec_for(CREATE_TOPICS), STRICT)
    for _ in range(2):
        with pytest.raises(KafkaError, match="controller_mutation_rate=1 is used up") as caught:
            quota.mutate(5)
        assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    # A refusal costs nothing.
    quotas.loop.run_for(1_001)
    quotas.of(spec_for(CREATE_TOPICS), STRICT).mutate(1)


def test_a_connection_that_is_refused_is_not_counted(quotas):
    address = ConfigEntity.of_quota(QuotaEntity(ip="10.0.0.7"))
    quotas.usage.take(address, {"connection_creation_rate": "1"})
    assert [quotas.usage.connect("10.0.0.7") for _ in range(2)] == [0, 0]
    assert [quotas.usage.connect("10.0.0.7") for _ in range(3)] == [1001] * 3
    assert quotas.usage.connect("10.0.0.8") == 0
    quotas.loop.run_for(1_001)
    assert quotas.usage.connect("10.0.0.7") == 0


def test_a_quota_that_can_not_be_read_is_told_and_leaves_the_others(quotas, caplog):
    quotas.set(producer_byte_rate="many", consumer_byte_rate="100")
    assert "quota of users/alice ignored" in caplog.text
    assert quotas.of(PRODUCE) is None
    assert quotas.of(FETCH) is not None
