"""A transaction of a producer that has lost its offsets."""

import pytest

from storage_engine.client import (
    CommitRefusedError,
    GroupMetadata,
    TopicPartition,
    TransactionFailedError,
)
from storage_engine.client.producer.transactions import ProducerTransactions
from storage_engine.core.errors import DeadlineExceededError


@pytest.mark.parametrize("error", [CommitRefusedError, DeadlineExceededError])
def test_a_transaction_without_its_offsets_can_only_be_aborted(produce, monkeypatch, error):
    """Its input would be read again, by whoever has the partitions next."""
    ended = []

    def refuse(*_args):
        raise error("refused")

    for name in ("init", "begin"):
        monkeypatch.setattr(ProducerTransactions, name, lambda _self: None)
    monkeypatch.setattr(ProducerTransactions, "send_offsets", refuse)
    monkeypatch.setattr(ProducerTransactions, "end", lambda _self, commits: ended.append(commits))
    producer = produce({"transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    with pytest.raises(error):
        producer.send_offsets_to_transaction(
            {TopicPartition("t", 0): 1}, GroupMetadata("g", 1, "m", None)
        )
    with pytest.raises(TransactionFailedError, match="abort the transaction: refused"):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.commit_transaction()
    assert ended == [False, True]
