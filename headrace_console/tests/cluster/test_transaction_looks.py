"""Open transactions that hold up readers: whose they are, and since when."""

from typing import Any

import pytest

from headrace_console.cluster.snapshot import Ends
from headrace_console.cluster.transaction_looks import TransactionLooks
from headrace_console.tests.made_snapshots import snapshot
from storage_engine.core.errors import ErrorCode, HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.describe_sinks import (
    DescribeSinksResponse,
    OpenMember,
    SinkQuery,
)
from storage_engine.protocol.messages.describe_producers import DescribeProducersResponse
from storage_engine.protocol.messages.describe_transactions import DescribeTransactionsResponse
from storage_engine.protocol.messages.list_transactions import ListTransactionsResponse

TP = TopicPartition("t0", 0)
Topic = DescribeProducersResponse.TopicResponse
SEEN = snapshot((1, 2), leader=1, partitions=2)
HELD_UP = {TP: Ends(0, 9, 4)}


class Brokers:
    """Producer 7 is open from offset 4 on, and producer 8 from 6 on. `described`: what the
    coordinator says of the owner of 7."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "DescribeProducers": DescribeProducersResponse(
                topics=[
                    Topic(
                        name=TP.topic,
                        partitions=[
                            Topic.PartitionResponse(
                                partition_index=TP.partition,
                                active_producers=[
                                    Topic.PartitionResponse.ProducerState(
                                        producer_id=producer,
                                        producer_epoch=3,
                                        current_txn_start_offset=at,
                                    )
                                    for producer, at in ((8, 6), (7, 4), (9, -1))
                                ],
                            )
                        ],
                    )
                ]
            ),
            "DescribeSinks": DescribeSinksResponse(error_code=0, queries=[]),
            "ListTransactions": ListTransactionsResponse(),
            "DescribeTransactions": DescribeTransactionsResponse(),
        }
        self.asked: list[tuple[int, str]] = []
        self.looks = TransactionLooks(self._ask)

    def _ask(self, questions):
        self.asked += [(broker, api.name) for broker, each in questions.items() for api, _ in each]
        return {
            broker: [self.answers[api.name] for api, _ in each]
            for broker, each in questions.items()
        }

    def look(self, ends=HELD_UP, at_ms=1_000):
        return self.looks.look(SEEN.metadata, ends, [2], at_ms)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_where_nobody_waits_nobody_is_asked(brokers):
    ends = {TP: Ends(0, 9, 9), TopicPartition("t0", 1): Ends(0, 9, None)}
    assert brokers.look(ends) == ()
    assert brokers.asked == []


def test_the_first_open_transaction_is_the_one_that_readers_wait_for(brokers):
    (row,) = brokers.look()
    assert (row.stable_offset, row.end_offset, row.since_ms) == (4, 9, 1_000)
    assert (row.producer_id, row.producer_epoch, row.first_offset) == (7, 3, 4)
    assert row.transactional_id is row.sink is None
    assert brokers.asked == [
        (1, "DescribeProducers"),
        (2, "ListTransactions"),
        (2, "DescribeSinks"),
    ]


def test_a_transaction_with_an_id_is_told_with_its_coordinator_and_its_own_beginning(brokers):
    brokers.answers["ListTransactions"] = ListTransactionsResponse(
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id="copier", producer_id=7, transaction_state="Ongoing"
            )
        ]
    )
    state = DescribeTransactionsResponse.TransactionState(
        error_code=0,
        transactional_id="copier",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=500,
        producer_id=7,
        producer_epoch=3,
    )
    brokers.answers["DescribeTransactions"] = DescribeTransactionsResponse(
        transaction_states=[state]
    )
    (row,) = brokers.look()
    assert (row.transactional_id, row.coordinator, row.since_ms) == ("copier", 2, 500)
    assert (row.timeout_ms, row.state) == (60_000, "Ongoing")
    state.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    (row,) = brokers.look()
    assert (row.transactional_id, row.producer_id) == (None, 7)


def test_a_task_of_a_query_is_told_as_its_sink_and_micro_batch(brokers):
    member = OpenMember(producer_id=7, epoch=3, batch=12, timeout_ms=9_000, aborting=True)
    query = SinkQuery(sink="s", query="q", members=[member])
    brokers.answers["DescribeSinks"] = DescribeSinksResponse(error_code=0, queries=[query])
    (row,) = brokers.look()
    assert (row.sink, row.state, row.timeout_ms) == (("s", "q", 12), "Aborting", 9_000)


def test_since_is_when_the_stable_offset_was_first_seen_there(brokers):
    other = TopicPartition("t0", 1)
    brokers.look({TP: Ends(0, 9, 4)}, at_ms=1_000)
    rows = brokers.look({TP: Ends(0, 12, 5), other: Ends(0, 3, 2)}, at_ms=2_000)
    assert [row.since_ms for row in rows] == [2_000, 2_000], "it has moved: another one holds it up"
    rows = brokers.look({TP: Ends(0, 15, 5), other: Ends(0, 5, 4)}, at_ms=3_000)
    assert [(row.tp, row.since_ms) for row in rows] == [(TP, 2_000), (other, 3_000)]


def test_brokers_that_do_not_answer_leave_a_partition_without_an_owner(brokers):
    error = HeadraceError("no answer")
    brokers.answers = dict.fromkeys(brokers.answers, error)
    (row,) = brokers.look()
    assert (row.tp, row.producer_id, row.since_ms) == (TP, None, 1_000)
