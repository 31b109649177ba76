"""R-CLI2: where partitions begin is asked for again while no broker answers."""

import socket

import pytest

from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_positions import Positions
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms

TIMEOUT_MS = 1_500


def test_brokers_that_do_not_answer_are_an_error_after_the_timeout_and_not_before():
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    positions = Positions(
        ConsumerConfig.of(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "group.id": "g",
                "default.api.timeout.ms": TIMEOUT_MS,
            }
        )
    )
    positions.assign([TopicPartition("t", 0)])
    began_ms = monotonic_ms()
    with pytest.raises(HeadraceError, match="no broker answers"):
        while True:
            positions.find()
    assert monotonic_ms() - began_ms > TIMEOUT_MS
    positions.close()
