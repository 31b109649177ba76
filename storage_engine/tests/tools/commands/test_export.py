"""R-CLI5: an export that is killed at any moment, and begun again, has every record once."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.client.fetching.bulk_reader import RecordsGoneError, Split, cut
from storage_engine.client.fetching.record_tables import SCHEMA
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.sampling import examples
from storage_engine.tools.commands.export import ExportOutcome, export
from storage_engine.tools.errors import CommandError
from storage_engine.tools.export_folder import ExportFolder, ExportRequest

REQUEST = ExportRequest(topics=("t",), since_ms=None, until_ms=5, isolation="read_committed")
SIZES = [3, 0, 5, 1]
"""Records of each split; offset n has the value n."""


def splits(topic: str = "t") -> list[Split]:
    ends = [sum(SIZES[: n + 1]) for n in range(len(SIZES))]
    return [
        Split(
            tp=TopicPartition(topic, 0), topic_id=UUID(int=7), start_offset=end - n, end_offset=end
        )
        for n, end in zip(SIZES, ends, strict=True)
    ]


class Killed(BaseException):
    """The process is gone: nothing is cleaned up."""


class FakeReader:
    """Batches of two records; the kill comes before so many further ones."""

    def __init__(self) -> None:
        self.batches_left = 10**9
        self.reads: list[int] = []

    def arrow_schema(self, _split: Split, **_selection: object) -> pa.Schema:
        return SCHEMA

    def read(self, split: Split, **_selection: object) -> Iterator[pa.RecordBatch]:
        for start in range(split.start_offset, split.end_offset, 2):
            if not self.batches_left:
                raise Killed
            self.batches_left -= 1
            yield batch(split.tp, range(start, min(start + 2, split.end_offset)))
        self.reads.append(split.start_offset)


def batch(tp: TopicPartition, offsets: range) -> pa.RecordBatch:
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "offset": n, "value": b"%d" % n}
        for n in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def opened(directory: Path, topic: str = "t") -> ExportFolder:
    return ExportFolder.open(directory, REQUEST, lambda: splits(topic))


def run(directory: Path, reader: FakeReader) -> ExportOutcome:
    return export(reader, opened(directory))


def values(directory: Path) -> list[bytes]:
    """As whoever reads a folder of Parquet files finds them."""
    return sorted(ds.dataset(directory, format="parquet").to_table()["value"].to_pylist())


@given(st.integers(0, 50), st.integers(-5, 200), st.integers(1, 60))
def test_a_range_is_cut_into_even_pieces_without_gap_or_overlap(start, size, most):
    pieces = cut(start, start + size, most)
    assert [n for a, b in pieces for n in range(a, b)] == list(range(start, start + size))
    sizes = {b - a for a, b in pieces}
    assert not sizes or (max(sizes) <= most and max(sizes) - min(sizes) <= 1)
    assert len(pieces) == max(0, -(-size // most))


WHERE = st.one_of(
    st.tuples(st.just("read"), st.integers(0, 6)),
    st.tuples(st.sampled_from(["fsync", "replace"]), st.integers(0, 5)),
)


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(WHERE, max_size=3))
def test_an_export_killed_anywhere_is_completed_by_the_next_and_writes_no_file_again(kills):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        directory = Path(folder)
        reader = FakeReader()
        for where, after in kills:
            with pytest.MonkeyPatch.context() as killing:
                # Who is killed removes nothing.
                killing.setattr(Path, "unlink", lambda *_, **__: None)
                reader.batches_left = after if where == "read" else 10**9
                if where != "read":
                    target = "os.fsync" if where == "fsync" else "pathlib.Path.replace"
                    kill_after(killing, target, after)
                try:
                    run(directory, reader)
                except Killed:
                    continue
        reader.batches_left = 10**9
        patch.undo()
        whole = {path: path.read_bytes() for path in directory.glob("[0-9]*.parquet")}
        outcome = run(directory, reader)
        assert values(directory) == sorted(b"%d" % n for n in range(sum(SIZES)))
        assert (outcome.records, outcome.kept) == (sum(SIZES), len(whole))
        assert all(path.read_bytes() == before for path, before in whole.items())
        assert not list(directory.glob(".*.part"))
        again = run(directory, reader)
        assert (again.written, again.records) == (0, sum(SIZES))


def kill_after(patch: pytest.MonkeyPatch, target: str, calls: int) -> None:
    module, _, name = target.rpartition(".")
    import importlib

    owner = Path if module == "pathlib.Path" else importlib.import_module(module)
    original = getattr(owner, name)
    left = [calls]

    def call(*arguments):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return original(*arguments)

    patch.setattr(target, call)


def test_a_file_that_was_damaged_is_written_again(tmp_path):
    run(tmp_path, FakeReader())
    opened(tmp_path).path_of(2).write_bytes(b"PAR1 and no more")
    outcome = run(tmp_path, FakeReader())
    assert (outcome.written, outcome.kept, len(values(tmp_path))) == (1, 3, 9)


def test_the_longest_name_of_a_topic_fits(tmp_path):
    export(FakeReader(), opened(tmp_path, topic="t" * 249))
    assert len(values(tmp_path)) == 9


def test_a_full_row_group_is_written_before_the_rest_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("storage_engine.tools.export_folder.ROW_GROUP_BYTES", 1)
    run(tmp_path, FakeReader())
    groups = [each.row_groups for each in ds.dataset(tmp_path, format="parquet").get_fragments()]
    assert sorted(len(each) for each in groups) == [0, 1, 2, 3]


def test_what_is_gone_is_told_with_what_to_do(tmp_path):
    class Empty(FakeReader):
        def read(self, split: Split, **_selection: object) -> Iterator[pa.RecordBatch]:
            raise RecordsGoneError("records of t-0 are gone")

    with pytest.raises(CommandError, match="t-0 are gone; begin another export, in another folder"):
        run(tmp_path, Empty())
