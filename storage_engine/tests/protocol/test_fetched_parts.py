"""read_committed: which batches of a fetch count."""

import pyarrow as pa
import pytest

from storage_engine.protocol.fetched_parts import committed, without_read
from storage_engine.protocol.records.record_batch import CONTROL_BIT, patch, read_header, seal
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches


class Log:
    """Bytes as a leader would send them, one batch after the other from offset 0 on."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.offset = 0

    def data(self, text: str, producer_id: int = -1) -> "Log":
        transactional = producer_id >= 0
        return self._add(
            encode_batches(
                pa.array([text]),
                producer_id=producer_id,
                producer_epoch=0 if transactional else -1,
                base_sequence=0 if transactional else -1,
                transactional=transactional,
            )[0].data
        )

    def marker(self, producer_id: int) -> "Log":
        """The end of a transaction; whether it is a commit or an abort is in its record."""
        self.data("marker", producer_id)
        start = len(self.content) - self._last_size
        header = read_header(self.content, start)
        view = memoryview(self.content)
        seal(view, start, header._replace(attributes=header.attributes | CONTROL_BIT))
        view.release()
        return self

    def _add(self, batch: memoryview) -> "Log":
        patch(batch, 0, base_offset=self.offset, leader_epoch=0)
        self._last_size = len(batch)
        self.content += batch
        self.offset += 1
        return self

    def read(self, *aborted: tuple[int, int]) -> list[str]:
        return self.read_on(0, *aborted)

    def read_on(self, position: int, *aborted: tuple[int, int]) -> list[str]:
        """All below `position` came with another fetch."""
        records, left = without_read(memoryview(bytes(self.content)), aborted, position)
        pieces = committed(records, left)
        return [value.decode() for value in decode_batches(pieces).values.to_pylist()]


def test_without_aborted_transactions_everything_counts() -> None:
    log = Log().data("a").data("b", 7).marker(7)
    assert log.read() == ["a", "b"]


def test_an_aborted_transaction_is_left_out_and_what_lies_between_is_not() -> None:
    log = Log().data("a", 7).data("b").data("c", 7).data("d", 8).marker(7).marker(8)
    assert log.read((7, 0)) == ["b", "d"]


def test_a_producer_counts_again_after_its_abort_marker() -> None:
    log = Log().data("a", 7).marker(7).data("b", 7).marker(7)
    assert log.read((7, 0)) == ["b"]


def test_a_transaction_before_the_aborted_one_counts() -> None:
    log = Log().data("a", 7).marker(7).data("b", 7).marker(7)
    assert log.read((7, 2)) == ["a"]


def test_a_transaction_that_was_aborted_before_the_fetch_began_is_left_out() -> None:
    log = Log().data("a", 7).marker(7).data("b")
    assert log.read((7, -5)) == ["b"]


def test_several_aborted_transactions_may_overlap() -> None:
    log = Log().data("a", 7).data("b", 8).data("c", 7).marker(8).data("d", 8).marker(7).marker(8)
    assert log.read((8, 1), (7, 0)) == ["d"]
    assert log.read((8, 1), (7, 0), (8, 4)) == []


@pytest.mark.parametrize("producer_id", [-1, 9])
def test_other_producers_are_not_touched(producer_id: int) -> None:
    log = Log().data("a", 7).data("b", producer_id).data("c", 7)
    assert log.read((7, 0)) == ["b"]


def test_what_was_read_takes_its_aborted_transactions_along() -> None:
    log = Log().data("a", 7).marker(7).data("b", 7).marker(7).data("c", 7).marker(7)
    aborted = ((7, 0), (7, 4))
    assert [log.read_on(position, *aborted) for position in range(7)] == [["b"]] * 3 + [[]] * 4


def test_a_transaction_that_goes_on_is_left_out_also_behind_what_was_read() -> None:
    log = Log().data("a", 7).data("b", 8).marker(8).data("c", 7).marker(7).data("d", 7)
    assert log.read_on(1, (7, 0)) == ["b", "d"]
    assert log.read_on(3, (7, 0)) == ["d"]
    assert log.read_on(3, (7, -5)) == ["d"]
