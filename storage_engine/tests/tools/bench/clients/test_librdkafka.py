"""The load of librdkafka, without a cluster."""

import pytest

from benchmarks.clients import librdkafka
from benchmarks.clients.loads import loads_of
from storage_engine.tools.errors import CommandError


def test_librdkafka_alone_has_latencies_too(acknowledger):
    figures = librdkafka.acknowledged_alone(acknowledger, "t", 100, 1)
    assert list(figures) == ["requests-100-ack-p50", "requests-100-ack-p99"]
    assert all(figure > 0 for figure in figures.values())


@pytest.mark.parametrize("load", loads_of("librdkafka", 2_000), ids=lambda load: load.name)
def test_librdkafka_produces_to_the_acknowledger(acknowledger, load):
    pytest.importorskip("confluent_kafka")
    assert librdkafka.produce(acknowledger, "t", load) > 0


def test_records_that_nobody_acknowledges_are_told(monkeypatch):
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(librdkafka, "_FLUSH_S", 0.2)
    (load, *_) = loads_of("librdkafka", 10)
    with pytest.raises(CommandError, match="0 of 10 records were acknowledged"):
        librdkafka.produce("127.0.0.1:1", "t", load)
