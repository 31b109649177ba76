"""The way of a request: its time, its turn among others, and the versions that are served."""

from dataclasses import replace

import pytest
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions

from simulation.world.network import CLIENT, SimulatedConnection
from storage_engine.broker.dispatcher import Dispatcher
from storage_engine.broker.handlers.api_call import HandlerTable
from storage_engine.broker.quotas.client_usage import ClientUsage, RequestQuotas
from storage_engine.broker.requests.long_work import LongWork
from storage_engine.broker.settings.config_store import ConfigEntity
from storage_engine.core.ids import TopicPartition
from storage_engine.core.quotas import QuotaEntity
from storage_engine.protocol.apis import metadata
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.apis.registry import SERVED_RANGES
from storage_engine.protocol.framing import encode_request_frame
from storage_engine.tests.broker.support import QuietConnection, cluster_fixture

SECOND_NS = 1_000_000_000


class Time:
    """Stands still but for work."""

    def __init__(self) -> None:
        self.ns = 0
        self.waits_ms: list[int] = []

    def monotonic_ms(self) -> int:
        return 0

    def work_ns(self) -> int:
        return self.ns

    def call_later(self, delay_ms, callback):
        self.waits_ms.append(delay_ms)


class Client(QuietConnection):
    closed = False

    def begin(self):
        return self


@pytest.mark.parametrize(
    ("decoding_s", "handling_s", "waits_ms"),
    [(0, 0, []), (2, 0, [19_001]), (0, 2, [19_001]), (1, 1, [19_001])],
    ids=["neither", "decoding", "handling", "both"],
)
def test_the_time_of_a_request_is_that_of_all_its_work(decoding_s, handling_s, waits_ms):
    time, client = Time(), Client()

    def decode(version, body, _most_items):
        time.ns += decoding_s * SECOND_NS
        return metadata.API.decode_request(version, body)

    def handle(_call, _request):
        time.ns += handling_s * SECOND_NS

    table = HandlerTable()
    table.add(replace(metadata.API, decode_request=decode), handle)
    usage = ClientUsage(time)
    entity = ConfigEntity.of_quota(QuotaEntity(user="alice"))
    usage.take(entity, {"request_percentage": "10"})
    work = LongWork(time, None, time.work_ns)
    frame = b"".join(encode_request_frame(metadata.API, 1, 0, "app", MetadataRequest(topics=[])))
    Dispatcher(table, work, RequestQuotas(usage, time))(client, memoryview(frame)[4:])
    # A tenth of a processor, with a second's worth that is saved: two seconds of work are paid for
    # in nineteen.
    assert time.waits_ms == waits_ms
    assert client.holds == len(waits_ms)


def test_an_unexpected_error_of_a_handler_is_told_to_its_connection(monkeypatch):
    time, client, error = Time(), Client(), ZeroDivisionError()
    failures: list[Exception] = []
    monkeypatch.setattr(client, "request_failed", failures.append)

    def fail(_call, _request):
        raise error

    table = HandlerTable()
    table.add(metadata.API, fail)
    work = LongWork(time, None, time.work_ns)
    frame = b"".join(encode_request_frame(metadata.API, 1, 0, "app", MetadataRequest(topics=[])))
    Dispatcher(table, work, RequestQuotas(ClientUsage(time), time))(client, memoryview(frame)[4:])
    assert failures == [error]


TP = TopicPartition("t", 0)


cluster = cluster_fixture("t", brokers=1, has_record=True, default_replication_factor="1")


def test_requests_behind_a_long_one_are_answered_after_it_and_others_before_it(cluster):
    unknown = [f"unknown-{number}" for number in range(3000)]
    many = MetadataRequest(topics=unknown, allow_auto_topic_creation=False)
    few = MetadataRequest(topics=["t"])
    told: list[str] = []
    one, other = (SimulatedConnection(cluster.network, CLIENT, None, 1) for _ in range(2))
    for connection, name, request in (
        (one, "long", many),
        (one, "behind it", few),
        (other, "of another client", few),
    ):
        connection.send(
            metadata.API,
            4,
            request,
            timeout_ms=60_000,
            on_reply=lambda _, name=name: told.append(name),
        )
    cluster.loop.run_for(1000)
    assert told == ["of another client", "long", "behind it"]


def test_kafka_python_takes_us_for_version_4_2(cluster):
    advertised = cluster[1].parts.dispatcher.advertised
    served = {key: SERVED_RANGES[key] for key in advertised if key in SERVED_RANGES}
    assert infer_broker_version_from_api_versions(served) == (4, 2)
