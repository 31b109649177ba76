"""What counts for the quota `request_percentage`: reading a request as well as handling it."""

from dataclasses import replace

import pytest

from storage_engine.broker.dispatcher import Dispatcher
from storage_engine.broker.handlers.api_call import HandlerTable
from storage_engine.broker.quotas.client_usage import ClientUsage, RequestQuotas
from storage_engine.broker.requests.long_work import LongWork
from storage_engine.broker.settings.config_store import ConfigEntity
from storage_engine.core.quotas import QuotaEntity
from storage_engine.core.security.principal import Principal
from storage_engine.protocol.apis import metadata
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.framing import encode_request_frame

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


class Client:
    """A connection that only holds."""

    principal = Principal("alice")
    closed = False

    def __init__(self) -> None:
        self.holds = 0

    def begin(self):
        return self

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


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
