"""Transactions and producers, as brokers tell of them: -1 is nothing that is known."""

from storage_engine.client.admin.transaction_states import (
    ActiveProducer,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.describe_producers import DescribeProducersResponse
from storage_engine.protocol.messages.describe_transactions import DescribeTransactionsResponse
from storage_engine.protocol.messages.list_transactions import ListTransactionsResponse
from storage_engine.tests.client.support.coordinators import found_at

T0 = TopicPartition("t", 0)


def test_the_ids_of_all_brokers_are_listed_by_name_and_filters_go_along(fake, cluster):
    asked = []

    def answer(broker_id, _api, message):
        asked.append((message.state_filters, message.producer_id_filters, message.duration_filter))
        row = ListTransactionsResponse.TransactionState
        name = f"id-{4 - broker_id}"
        return ListTransactionsResponse(transaction_states=[row(transactional_id=name)])

    fake.admin = answer
    found = list_transactions(cluster, states=["Ongoing"], producer_ids=[7], open_for_ms=5)
    listed = [(each.transactional_id, each.coordinator) for each in found]
    assert listed == [("id-1", 3), ("id-2", 2), ("id-3", 1)]
    assert asked == [(["Ongoing"], [7], 5)] * 3
    list_transactions(cluster)
    assert asked[-1] == ([], [], -1), "a transaction that is open for any time"


def test_a_transaction_that_is_not_open_has_no_beginning(fake, cluster):
    state = DescribeTransactionsResponse.TransactionState

    def answer(_broker_id, api, _message):
        if api == "FindCoordinator":
            return found_at(fake, 2)
        return DescribeTransactionsResponse(
            transaction_states=[
                state(
                    transactional_id="x",
                    transaction_state="Empty",
                    transaction_start_time_ms=-1,
                    topics=[state.TopicData(topic="t", partitions=[0, 3])],
                )
            ]
        )

    fake.admin = answer
    found = describe_transaction(cluster, "x")
    assert (found.state, found.started_ms, found.coordinator) == ("Empty", None, 2)
    assert found.partitions == (T0, TopicPartition("t", 3))


def test_producers_come_by_id_and_what_is_not_known_is_none(fake, cluster):
    fake.add_topic("t", [1])
    topic = DescribeProducersResponse.TopicResponse
    row = topic.PartitionResponse
    producers = [
        row.ProducerState(producer_id=9, coordinator_epoch=-1),
        row.ProducerState(
            producer_id=2,
            producer_epoch=1,
            last_sequence=0,
            last_timestamp=0,
            coordinator_epoch=0,
            current_txn_start_offset=0,
        ),
    ]
    fake.admin = lambda *_: DescribeProducersResponse(
        topics=[topic(name="t", partitions=[row(active_producers=producers)])]
    )
    known, unknown = describe_producers(cluster, [T0])[T0]
    assert known == ActiveProducer(
        producer_id=2,
        epoch=1,
        last_sequence=0,
        last_timestamp_ms=0,
        coordinator_epoch=0,
        transaction_start_offset=0,
    )
    assert (unknown.producer_id, unknown.last_sequence, unknown.last_timestamp_ms) == (
        9,
        None,
        None,
    )
    assert (unknown.coordinator_epoch, unknown.transaction_start_offset) == (None, None)
