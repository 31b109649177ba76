"""The rules of the batch commit, each taken out: what a test that means it must notice."""

from dataclasses import replace

from storage_engine.core.coordinator_log import AppendRecord, StateLog
from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.core.transactions.transaction_events import Event, JoinMicroBatch
from storage_engine.core.transactions.transaction_state import NO_BATCH, LedgerKey, MemberRecord
from storage_engine.core.transactions.transactions import TransactionCoordinator
from storage_engine.core.transactions.verification_guard import VerificationGuards


def with_rules(rules: type[MicroBatchCommits], log: type[StateLog] = StateLog):
    """Coordinators with these rules in place of the true ones."""

    def make() -> TransactionCoordinator:
        coordinator = TransactionCoordinator()
        coordinator._log.__class__ = log
        coordinator.batches = rules(
            coordinator._log, timeout_max_ms=24 * 3600 * 1000, expiration_ms=7 * 24 * 3600 * 1000
        )
        return coordinator

    return make


class DeafGuards(VerificationGuards):
    __slots__ = ()

    def note_marker(self, producer_id: int) -> None:
        pass


class AbortsWhatIsListed(MicroBatchCommits):
    def _abort_listed(self, key, members, batch):
        for producer_id, _ in members:
            ledger_key = self._ending.pop(producer_id, None)
            if ledger_key is not None:
                end = next(
                    each
                    for each in self._ledgers[ledger_key].record.ends
                    if each.producer_id == producer_id
                )
                self._send_markers(producer_id, 0, False, end.partitions)
        return super()._abort_listed(key, members, batch)


class DropsAtOnce(MicroBatchCommits):
    def _drop_ended(self, key, ledger):
        ledger.unmarked = {}
        super()._drop_ended(key, ledger)


class ForgetsTheFirstRun(MicroBatchCommits):
    """A ledger that begins with a batch without members is made before the run is noted."""

    def _write_commit(self, event, key, ledger):
        if not event.members and ledger.record.last == NO_BATCH:
            ledger.record = replace(ledger.record, runs=())
        super()._write_commit(event, key, ledger)


class DoesNotWait(MicroBatchCommits):
    """Rule 3 alone left out: the ends are still carried on."""

    def _markers_are_missing(self, ledger):
        return False


class DoesNotCarry(DoesNotWait):
    def _carried(self, ledger):
        for end in ledger.record.ends:
            del self._ending[end.producer_id]
        return ()


class AnswersAtOnce(StateLog):
    __slots__ = ()

    def after(self, number, action):
        action()


class KnowsAttemptsByTheirTask(MicroBatchCommits):
    """Gives the first producer id of a (sink, query, batch) again, as Spark's ids come again."""

    def join(self, event: JoinMicroBatch) -> None:
        for producer_id, record in self.members():
            if (record.ledger, record.batch) == (LedgerKey(event.sink, event.query), event.batch):
                del self._members[producer_id]
                event = replace(event, fresh_producer_id=producer_id)
                break
        super().join(event)


class KeyedBySink(TransactionCoordinator):
    def step(self, event: Event):
        return super().step(replace(event, query="") if hasattr(event, "query") else event)


class LooksAtDrainedFirst(MicroBatchCommits):
    def _commit_refusal(self, event, ledger):
        if event.drained > 0:
            return ErrorCode.NOT_COMMITTED
        return super()._commit_refusal(event, ledger)


class LooksAtMembersFirst(MicroBatchCommits):
    def _commit_refusal(self, event, ledger):
        if self._a_member_is_lost(event):
            return ErrorCode.MEMBER_LOST
        return super()._commit_refusal(event, ledger)


class CommitsWhatIsOpen(MicroBatchCommits):
    def _a_member_is_lost(self, event):
        return False

    def _write_commit(self, event, key, ledger):
        members = {each for each in event.members if self._open_member(*each)}
        super()._write_commit(replace(event, members=frozenset(members)), key, ledger)


class ForgetsTheBatchId(MicroBatchCommits):
    def _is_committed(self, event, ledger):
        return False


class KeepsPartitionsInMemory(MicroBatchCommits):
    def enlist(self, event):
        member = self._open_member(event.producer_id, event.producer_epoch)
        before = self._log.appended
        super().enlist(event)
        if member is not None and self._log.appended > before:
            # The record goes out, but without what it is about.
            effect = self._log._effects[-1]
            assert isinstance(effect, AppendRecord)
            key, record = effect.entry
            assert isinstance(record, MemberRecord)
            lost = replace(record, partitions=frozenset())
            self._log._effects[-1] = replace(effect, entry=(key, lost))


class TimesEachByItself(MicroBatchCommits):
    def heartbeat(self, event):
        pass

    def enlist(self, event):
        touched = dict(self.touched)
        super().enlist(event)
        self.touched = touched


class HasNoTimeout(MicroBatchCommits):
    def tick(self, now):
        return iter(())


class ForgetsOrigins(MicroBatchCommits):
    def _origins_moved(self, event):
        return False
