"""The producers that may write transactional batches to a partition, as their coordinators have
verified. A verification is valid only if no marker of the producer came since the coordinator was
asked.

Without it a delayed batch would land behind the marker that ended its transaction and open another
one that nobody ends, and the last stable offset would never advance again. A new leader begins with
an empty table and asks again.

The transactional ids by which the leader of a partition asks the coordinator of one partition of
the state log about any producer: batches name their producer, but not its transactional id, which
would tell the coordinator. No producer can have such a name.

Source: KIP-890, R-SPARK2.
"""

from typing import NamedTuple


class TransactionVerification(NamedTuple):
    """One question to a coordinator: whether the producer's transaction is open and has this
    partition."""

    producer_id: int
    epoch: int
    number: int
    """Distinguishes it from the producer's verifications before its last marker."""


class VerificationGuards:
    """The verified producers of one partition, as long as one leader leads it."""

    __slots__ = ("_asked", "_numbers", "_open")

    def __init__(self) -> None:
        self._open: dict[int, TransactionVerification] = {}
        """By producer id what the coordinator has confirmed, from its answer to the next marker."""
        self._asked: dict[int, TransactionVerification] = {}
        self._numbers = 0

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return True when a transactional batch of the producer may be appended."""
        return self.verification(producer_id, epoch) is not None

    def verification(self, producer_id: int, epoch: int) -> TransactionVerification | None:
        """Return the verification that allows the producer to write now; None where it may not."""
        known = self._open.get(producer_id)
        return known if known is not None and known.epoch == epoch else None

    def is_valid(self, verification: TransactionVerification) -> bool:
        """Return True while no marker has come since it was confirmed: under one epoch a producer
        can be in its next transaction by now, which is not verified."""
        return self._open.get(verification.producer_id) == verification

    def ask(self, producer_id: int, epoch: int) -> TransactionVerification:
        """Return the verification to ask the coordinator for; the same one until it is answered."""
        asked = self._asked.get(producer_id)
        if asked is None or asked.epoch != epoch:
            self._numbers += 1
            asked = TransactionVerification(producer_id, epoch, self._numbers)
            self._asked[producer_id] = asked
        return asked

    def note_answer(self, asked: TransactionVerification, *, enlisted: bool) -> bool:
        """Record the coordinator's answer; return True when the producer may write now: the
        coordinator confirmed it, and no marker came since it was asked."""
        if self._asked.get(asked.producer_id) != asked:
            return False
        del self._asked[asked.producer_id]
        if enlisted:
            self._open[asked.producer_id] = asked
        return enlisted

    def note_marker(self, producer_id: int) -> None:
        """Drop the producer's verification: its transaction has ended here."""
        self._open.pop(producer_id, None)
        self._asked.pop(producer_id, None)


SEARCH_PREFIX = "__headrace_search/"


def search_name(partition: int) -> str:
    """Return the name that the coordinator of that partition of the state log answers to."""
    return f"{SEARCH_PREFIX}{partition}"


def is_search(transactional_id: str) -> bool:
    return transactional_id.startswith(SEARCH_PREFIX)


def searched_partition(transactional_id: str) -> int | None:
    """Return the partition that the name is of; None for a name that `search_name` does not
    make."""
    number = transactional_id.removeprefix(SEARCH_PREFIX)
    if number.isascii() and number.isdigit() and len(number) < 10:
        partition = int(number)
        return partition if search_name(partition) == transactional_id else None
    return None
