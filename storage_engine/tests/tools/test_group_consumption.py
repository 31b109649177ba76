"""`headrace consume --group` prints and commits as a member of a group."""

import argparse
from typing import Any, ClassVar

import pytest

from storage_engine.client import ConsumerRecord
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import DecodedRecords
from storage_engine.tools import group_consumption
from storage_engine.tools.errors import UsageError
from storage_engine.tools.group_consumption import check_group, consume_as_member


def arguments(**given: Any) -> argparse.Namespace:
    usual = {
        "topic": "t",
        "bootstrap_server": "h:1",
        "command_config": None,
        "group": "g",
        "group_protocol": None,
        "start": "earliest",
        "partition": None,
        "exit_at_end": False,
        "columns": None,
        "where": None,
        "isolation": "read_uncommitted",
        "max": None,
        "timeout_ms": None,
    }
    return argparse.Namespace(**{**usual, **given})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"group": None, "group_protocol": "consumer"}, "--group-protocol needs --group"),
        ({"partition": 0}, "--partition does not fit --group"),
        ({"exit_at_end": True}, "--exit-at-end does not fit --group"),
        ({"columns": "a"}, "--columns does not fit --group"),
        ({"where": "a > 1"}, "--where does not fit --group"),
        ({"start": "42"}, "--from 42 does not fit --group"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(given, complaint):
    with pytest.raises(UsageError, match=complaint):
        check_group(arguments(**given))


def test_options_that_fit_are_taken():
    check_group(arguments(group_protocol="consumer", start="latest", max=3))
    check_group(arguments(group=None, partition=0, start="42", exit_at_end=True))


class FakeConsumer:
    """Has three records, then none; whether its block has ended with an error is kept."""

    made: ClassVar[list["FakeConsumer"]] = []

    def __init__(self, config: Any) -> None:
        self.config = config
        self.records = [record(number) for number in range(3)]
        self.error: Any = None
        self.made.append(self)

    def subscribe(self, topics: list[str]) -> None:
        assert topics == ["t"]

    def poll(self, _timeout_ms: int, most: int | None) -> list[ConsumerRecord]:
        taken, self.records = self.records[:most], self.records[most:] if most else []
        return taken

    def __enter__(self) -> "FakeConsumer":
        return self

    def __exit__(self, kind: Any, _error: Any, _traceback: Any) -> None:
        self.error = kind


def record(number: int) -> ConsumerRecord:
    return ConsumerRecord("t", number % 2, number, 1_000, 0, None, b"%d" % number, (("h", b"x"),))


@pytest.fixture
def consumer(monkeypatch):
    FakeConsumer.made.clear()
    monkeypatch.setattr(group_consumption, "Consumer", FakeConsumer)
    return FakeConsumer.made


def form(tp: TopicPartition, records: DecodedRecords) -> bytes:
    return b"".join(b"%d:%s " % (tp.partition, value) for value in records.values.to_pylist())


def test_records_are_printed_by_partition_up_to_the_most(consumer, capfdbinary):
    consume_as_member(arguments(group_protocol="consumer", max=2), form)
    assert capfdbinary.readouterr().out == b"0:0 1:1 "
    (made,) = consumer
    assert (made.config["group.id"], made.config["group.protocol"]) == ("g", "consumer")
    assert made.config["auto.offset.reset"] == "earliest"
    assert made.error is None


def test_it_ends_when_nothing_comes(consumer, capfdbinary):
    consume_as_member(arguments(timeout_ms=1), form)
    assert capfdbinary.readouterr().out == b"0:0 1:1 0:2 "
    assert consumer[0].config["group.protocol"] == "classic"


def test_what_an_interruption_may_have_left_unprinted_is_not_committed(consumer):
    def interrupted(_tp: TopicPartition, _records: DecodedRecords) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume_as_member(arguments(), interrupted)
    assert consumer[0].error is KeyboardInterrupt


def test_an_interruption_between_two_polls_is_an_end_like_another(consumer, monkeypatch):
    def poll(_self: FakeConsumer, _timeout_ms: int, _most: int | None) -> list[ConsumerRecord]:
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeConsumer, "poll", poll)
    consume_as_member(arguments(), form)
    assert consumer[0].error is None
