"""Which producers may write transactional batches to a partition, by the word of their coordinator.
Its one rule: that word counts only if no marker of the producer came since it was asked for.

Without it a batch that was delayed on the way lands behind the marker that ended its transaction,
opens another that nobody ends, and the last stable offset stands still for ever. A new leader
begins with an empty table: it asks again. Source: KIP-890, R-SPARK2.
"""

from typing import NamedTuple


class Question(NamedTuple):
    """What the coordinator was asked: is this producer's transaction open, with this partition?"""

    producer_id: int
    epoch: int
    number: int
    """Tells it from a question of the same producer before its last marker."""


class VerificationGuards:
    """Of one partition, as long as one leader leads it."""

    __slots__ = ("_asked", "_numbers", "_open")

    def __init__(self) -> None:
        self._open: dict[int, Question] = {}
        """By producer id what the coordinator said yes to, from its word to the next marker."""
        self._asked: dict[int, Question] = {}
        self._numbers = 0

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a transactional batch of the producer may be appended."""
        word = self._open.get(producer_id)
        return word is not None and word.epoch == epoch

    def word(self, producer_id: int, epoch: int) -> Question | None:
        """What the coordinator said yes to, if the producer may write now."""
        word = self._open.get(producer_id)
        return word if word is not None and word.epoch == epoch else None

    def holds(self, word: Question) -> bool:
        """Whether no marker has come since that word: under one epoch a producer can have the next
        transaction by now, which is none of the first one's business."""
        return self._open.get(word.producer_id) == word

    def ask(self, producer_id: int, epoch: int) -> Question:
        """What to ask the coordinator; the same question as long as it is not answered."""
        question = self._asked.get(producer_id)
        if question is None or question.epoch != epoch:
            self._numbers += 1
            question = Question(producer_id, epoch, self._numbers)
            self._asked[producer_id] = question
        return question

    def note_answer(self, question: Question, *, enlisted: bool) -> bool:
        """Whether the producer may write now: the coordinator says so, and its word still
        counts."""
        if self._asked.get(question.producer_id) != question:
            return False
        del self._asked[question.producer_id]
        if enlisted:
            self._open[question.producer_id] = question
        return enlisted

    def note_marker(self, producer_id: int) -> None:
        """Its transaction has ended here: what was said of it is over."""
        self._open.pop(producer_id, None)
        self._asked.pop(producer_id, None)
