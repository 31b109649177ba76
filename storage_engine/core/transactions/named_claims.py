"""Which write may say that it has written a number, where several writes of one micro-batch, or its
repetition, use the same one. Each number may be written, or repeated, once in each call of
`foreachBatch`.

    asked by                                       answer
    the same write, or one that follows a write    ALREADY_COMMITTED
      that was given up
    another call of `foreachBatch` for the same    ALREADY_COMMITTED, and from its commit on the
      micro-batch: the driver was restarted        number is claimed by that write
    a second write of the same call                BATCH_ID_TAKEN: its rows would be dropped
    another micro-batch, another query             BATCH_ID_TAKEN

A micro-batch that is repeated has no new number until its former ones are repeated, too: code whose
names have changed would write rows again under the new names. A call that was killed between two
writes begins with those that it had done. Checked as a model. Source: R-SPARK2.
"""

from collections import Counter
from dataclasses import replace
from uuid import UUID

from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions.transaction_events import CommittedMicroBatch, RunRequest
from storage_engine.core.transactions.transaction_state import LedgerKey, LedgerRecord, NumberClaim


def answer_to(committed: CommittedMicroBatch, event: RunRequest) -> ErrorCode:
    """Return ALREADY_COMMITTED where the write is a repetition of the one that was committed."""
    is_repeated = committed.owner == event.owner and not _are_two(committed.claim, event.claim)
    return ErrorCode.ALREADY_COMMITTED if is_repeated else ErrorCode.BATCH_ID_TAKEN


def _are_two(before: NumberClaim | None, claim: NumberClaim | None) -> bool:
    if before is None or claim is None:
        return False
    if before.micro_batch != claim.micro_batch:
        return True
    return before.attempt == claim.attempt and before.write not in (claim.write, None)


def claimed(record: LedgerRecord, event: RunRequest, *, by_write: bool) -> LedgerRecord:
    """Return the record of a committed number as the repetition claims it: for its call of
    `foreachBatch`, and `by_write` for itself alone."""
    before, claim = record.claim, event.claim
    if claim is None or record.last != event.batch:
        return record
    if not by_write:
        if before is not None and before.attempt == claim.attempt:
            return record
        claim = replace(claim, write=None)
    return record if before == claim else replace(record, claim=claim)


def given_up(record: LedgerRecord, write: UUID | None) -> LedgerRecord:
    """Return the record without that write: what it was told is not known, so the next one of the
    call is its repetition."""
    claim = record.claim
    if claim is None or write is None or claim.write != write:
        return record
    return replace(record, claim=replace(claim, write=None))


class _MicroBatch:
    """The numbers of one micro-batch of one query, by the call that has claimed each."""

    __slots__ = ("attempts", "many", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.attempts: dict[LedgerKey, UUID] = {}
        self.many: Counter[UUID] = Counter()
        """How many numbers each call has claimed: a commit looks at one of these."""


class NamedClaims:
    """The claims on the numbers of the newest micro-batch of each query, by sink."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], _MicroBatch] = {}

    def note(self, key: LedgerKey, record: LedgerRecord) -> None:
        claim = record.claim
        if claim is None:
            return
        query = key.sink, record.owner
        newest = self._newest.get(query)
        if newest is None or newest.number < claim.micro_batch:
            newest = self._newest[query] = _MicroBatch(claim.micro_batch)
        if newest.number == claim.micro_batch:
            self._drop(newest, key)
            newest.attempts[key] = claim.attempt
            newest.many[claim.attempt] += 1

    def forget(self, key: LedgerKey, record: LedgerRecord) -> None:
        """Forget the number, as its ledger goes."""
        query = key.sink, record.owner
        newest = self._newest.get(query)
        if newest is not None:
            self._drop(newest, key)
            if not newest.attempts:
                del self._newest[query]

    def are_repeated(self, event: RunRequest) -> bool:
        """Return True when this call of `foreachBatch` has repeated all numbers that earlier calls
        for its micro-batch have written."""
        claim = event.claim
        newest = self._newest.get((event.sink, event.owner))
        if claim is None or newest is None or newest.number != claim.micro_batch:
            return True
        return newest.many[claim.attempt] == len(newest.attempts)

    def __len__(self) -> int:
        return sum(len(each.attempts) for each in self._newest.values())

    def _drop(self, newest: _MicroBatch, key: LedgerKey) -> None:
        attempt = newest.attempts.pop(key, None)
        if attempt is not None:
            newest.many[attempt] -= 1
            if not newest.many[attempt]:
                del newest.many[attempt]
