"""A fetch that can't be sent or checked costs no record (R-CLI2)."""

import pytest

from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.client.support.batches import append_batches

T0 = TopicPartition("t", 0)
POLLS = 12


@pytest.fixture
def filled(fake):
    fake.add_topic("t", [1])
    append_batches(fake, 30)
    return fake


def test_a_fetch_whose_topic_can_not_be_checked_is_sent_again(filled, cluster, monkeypatch):
    """Of a broker that knows topics by their names only."""
    filled.api_versions[1] = (4, 12)
    cluster.refresh(["t"])
    reader = BatchFetcher(cluster, {T0: (0, None)}, topic_ids=dict(filled.topic_ids))
    refresh = cluster.refresh

    def failing(*_):
        monkeypatch.setattr(cluster, "refresh", refresh)
        raise KafkaError("no answer", ErrorCode.REQUEST_TIMED_OUT)

    found = []
    monkeypatch.setattr(cluster, "refresh", failing)
    for _ in range(POLLS):
        try:
            found += reader.poll(300)
        except HeadraceError:
            continue
        if found:
            break
    assert [(each.start_offset, each.next_offset) for each in found] == [(0, 90)]
    reader.close()


def test_what_has_come_is_returned_also_when_no_further_fetch_can_be_sent(
    filled, cluster, monkeypatch
):
    cluster.refresh(["t"])
    reader = BatchFetcher(cluster, {T0: (0, None)})
    sends = iter([reader._send_fetches])

    def send() -> None:
        if (real := next(sends, None)) is None:
            raise KafkaError("of the test", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        real()

    monkeypatch.setattr(reader, "_send_fetches", send)
    with pytest.raises(KafkaError, match="of the test"):
        reader.poll(5000)
    (found,) = reader.poll(5000)
    assert (found.start_offset, found.next_offset) == (0, 90)
    reader.close()
