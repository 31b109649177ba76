"""A group reads the newest offset that is committed, and nothing else."""

from types import SimpleNamespace
from typing import Any

import pytest

from simulation.checks.copies import BatchNote
from simulation.checks.ledger import InvariantViolation
from simulation.transactions.group_ledger import GROUP, NOWHERE, GroupLedger, OffsetCommit
from simulation.transactions.ledger import ObservedTransaction
from storage_engine.core.groups.records import OffsetKey, OffsetRecord
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.state.group_records import encode_key, encode_record
from storage_engine.protocol.state.state_batches import encode_raw

TP = TopicPartition("source", 0)
PRODUCER = 7


class Log:
    """The log of a group's coordinator, as the checker sees its batches."""

    def __init__(self) -> None:
        record: Any = SimpleNamespace(unclean=False)
        self.record = record
        self.ledger = GroupLedger(lambda _tp: record)
        self._end = 0

    def commit(self, name: str, offset: int, *, transaction: Any = None) -> OffsetCommit:
        """A commit that is sent, and written into the log."""
        commit = OffsetCommit(name, {TP: offset}, transaction)
        self.ledger.sends(commit)
        self.write(name, offset, is_transactional=transaction is not None)
        return commit

    def write(self, name: str, offset: int, *, is_transactional: bool = False) -> None:
        record = OffsetRecord(offset=offset, metadata=name, commit_ms=1)
        batch = encode_raw([(encode_key(OffsetKey(GROUP, TP)), encode_record(record))], now_ms=1)
        self.ledger.on_data(self._note(is_transactional=is_transactional), bytes(batch))

    def end(self, *, commits: bool) -> None:
        self.ledger.on_marker(self._note(is_transactional=True, marker_commits=commits))

    def _note(self, *, is_transactional: bool, marker_commits: bool | None = None) -> BatchNote:
        at, self._end = self._end, self._end + 1
        producer = (PRODUCER, 0, 0) if is_transactional else (-1, -1, -1)
        return BatchNote(at, at + 1, 0, 0, producer, is_transactional, marker_commits, at)

    def read(self, offset: int, name: str, *, at_least: int = NOWHERE, is_fresh: bool = True):
        self.ledger.check_read(TP, offset, name, at_least, is_fresh=is_fresh)


def transaction(outcome: bool | None = None) -> ObservedTransaction:
    made = ObservedTransaction("t", TopicPartition("state", 0))
    made.outcome = outcome
    return made


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_later_of_two_offsets_counts_and_an_older_one_only_of_a_broker_that_was_deposed(log):
    log.commit("first", 5)
    log.commit("second", 3)
    (place,) = log.ledger.places().values()
    log.read(3, "second", at_least=place)
    log.read(5, "first", at_least=place, is_fresh=False)
    with pytest.raises(InvariantViolation, match="newest offset"):
        log.read(5, "first", at_least=place)
    with pytest.raises(InvariantViolation, match="newest offset"):
        log.read(NOWHERE, "", at_least=place)


def test_an_offset_of_a_transaction_counts_once_its_marker_is_committed(log):
    log.commit("plain", 1)
    log.commit("open", 9, transaction=transaction())
    with pytest.raises(InvariantViolation, match="which does not count"):
        log.read(9, "open")
    log.end(commits=True)
    log.read(9, "open")
    assert log.ledger.committed == 1
    log.commit("aborted", 20, transaction=transaction())
    log.end(commits=False)
    with pytest.raises(InvariantViolation, match="which does not count"):
        log.read(20, "aborted")


def test_a_later_plain_offset_outlives_the_marker_of_an_earlier_transaction(log):
    log.commit("open", 9, transaction=transaction())
    log.commit("plain", 1)
    log.end(commits=True)
    assert log.ledger.places() == {TP: 1}


@pytest.mark.parametrize(("name", "offset"), [("never", 5), ("first", 6)])
def test_an_offset_that_nobody_sent_is_found_in_the_log_and_in_an_answer(log, name, offset):
    log.commit("first", 5)
    with pytest.raises(InvariantViolation, match="nothing else"):
        log.read(offset, name)
    with pytest.raises(InvariantViolation, match="only what was sent is in a log"):
        log.write(name, offset)


def test_an_acknowledged_commit_must_be_in_the_log_unless_all_its_replicas_lost_their_power(log):
    commit = OffsetCommit("first", {TP: 5}, None)
    log.ledger.sends(commit)
    with pytest.raises(InvariantViolation, match="acknowledges is committed"):
        log.ledger.record_answer(commit)
    log.record.unclean = True
    log.ledger.record_answer(commit)
    log.read(99, "anything")


@pytest.mark.parametrize(("outcome", "commits"), [(True, False), (False, True)])
def test_in_the_end_offsets_have_the_outcome_of_their_transaction(log, outcome, commits):
    commit = log.commit("open", 9, transaction=transaction(outcome))
    log.ledger.record_answer(commit)
    log.end(commits=commits)
    with pytest.raises(InvariantViolation, match="if and only if"):
        log.ledger.check_end(lambda _: False)
    log.ledger.check_end(lambda _: True)
