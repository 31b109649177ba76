"""What others do to a table stops it, or does not; and what a commit becomes."""

import shutil
import uuid

import deltalake
import pyarrow as pa
import pytest

from headrace_lake.delta.batch_commits import commit_batch
from headrace_lake.delta.data_files import RowFiles
from headrace_lake.delta.store import StoreError, TableStore
from headrace_lake.delta.table import LakeTopic
from headrace_lake.protocol import progress
from headrace_lake.protocol.attempts import AttemptDecision
from headrace_lake.protocol.columns import typed_shape
from headrace_lake.protocol.stops import (
    ACCEPTED_GAPS,
    ACCEPTED_VERSION,
    TOPIC_ID,
    StopKind,
    TableStoppedError,
)
from headrace_lake.tests.lake_tables import (
    PLAIN,
    TOPIC,
    as_batch,
    opened,
    plain_rows,
    schema_of_types,
    write,
)
from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import topic_id_to_text


def offsets(folder) -> list[int]:
    table = deltalake.DeltaTable(str(folder)).to_pyarrow_table(columns=["_offset"])
    return sorted(table["_offset"].to_pylist())


@pytest.fixture
def table(tmp_path):
    made = opened(tmp_path)
    assert write(made, plain_rows(0, 10), None, 10) is AttemptDecision.COMMITTED
    return made


def set_property(folder, name: str, value: str) -> None:
    deltalake.DeltaTable(str(folder)).alter.set_table_properties(
        {name: value}, raise_if_not_exists=False
    )


def test_a_table_goes_on_from_what_it_holds(table, tmp_path):
    again = opened(tmp_path)
    assert again.progress([0, 1]) == table.progress([0])
    assert again.progress([0])[0].end_offset == 10
    assert write(again, plain_rows(10, 12), 10, 12) is AttemptDecision.COMMITTED
    assert offsets(tmp_path) == list(range(12))


def test_a_writer_whose_partition_another_one_moved_is_fenced(table, tmp_path):
    other = opened(tmp_path)
    assert write(other, plain_rows(10, 12), 10, 12) is AttemptDecision.COMMITTED
    assert write(table, plain_rows(10, 15), 10, 15) is AttemptDecision.FENCED
    assert table.progress([0])[0].end_offset == 12
    assert offsets(tmp_path) == list(range(12))


def test_writers_of_different_partitions_don_t_fence_one_another(table, tmp_path):
    other = opened(tmp_path)
    rows = plain_rows(0, 3, partition=1)
    assert write(other, rows, None, 3, partition=1) is AttemptDecision.COMMITTED
    assert write(table, plain_rows(10, 12), 10, 12) is AttemptDecision.COMMITTED
    assert {each: p.end_offset for each, p in opened(tmp_path).progress([0, 1]).items()} == {
        0: 12,
        1: 3,
    }


class Fault:
    """Once, the library's commit fails before its effect, or behind it."""

    def __init__(self, table, *, has_effect: bool) -> None:
        self._commit = table.handle.create_write_transaction
        self._table = table
        self._has_effect = has_effect
        table.handle.create_write_transaction = self

    def __call__(self, *arguments, **settings):
        del self._table.handle.create_write_transaction
        if self._has_effect:
            self._commit(*arguments, **settings)
        raise OSError("the connection was reset\nand more")


@pytest.mark.parametrize("has_effect", [False, True])
def test_a_batch_is_committed_once_whatever_an_error_hid(table, tmp_path, has_effect):
    batch = as_batch(table, 10, 12)
    Fault(table, has_effect=has_effect)
    with pytest.raises(StoreError, match=r"may have failed: the connection was reset$"):
        commit_batch(table, batch, files_of(table, plain_rows(10, 12)))
    files = files_of(table, plain_rows(10, 12))
    assert commit_batch(table, batch, files) is AttemptDecision.COMMITTED
    assert offsets(tmp_path) == list(range(12))
    assert table.version == 2


def files_of(table, rows):
    files = RowFiles(table.store, PLAIN.row_schema, order=table.version + 1)
    files.write(rows)
    return files.finish()


def delete(folder):
    deltalake.DeltaTable(str(folder)).delete("_offset = 3")


def overwrite(folder):
    deltalake.write_deltalake(str(folder), plain_rows(0, 3), mode="overwrite")


def restore(folder):
    deltalake.DeltaTable(str(folder)).restore(0)


@pytest.mark.parametrize("change", [delete, overwrite, restore])
@pytest.mark.parametrize("is_new", [False, True], ids=["while it runs", "before it starts"])
def test_rows_that_others_changed_stop_the_table(table, tmp_path, change, is_new):
    change(tmp_path)
    with pytest.raises(TableStoppedError, match="version 2") as stopped:
        if is_new:
            opened(tmp_path)
        else:
            write(table, plain_rows(10, 12), 10, 12)
    assert stopped.value.kind is StopKind.FOREIGN_CHANGE
    assert "\n" not in str(stopped.value)
    if not is_new:
        # It stays so, for the same process as well.
        with pytest.raises(TableStoppedError, match="version 2"):
            table.reload()


def test_a_change_that_was_accepted_does_not_stop_the_table(table, tmp_path):
    delete(tmp_path)
    set_property(tmp_path, ACCEPTED_VERSION, "2")
    again = opened(tmp_path)
    assert write(again, plain_rows(10, 12), 10, 12) is AttemptDecision.COMMITTED
    assert offsets(tmp_path) == [each for each in range(12) if each != 3]
    delete_later = deltalake.DeltaTable(str(tmp_path))
    delete_later.delete("_offset = 5")
    with pytest.raises(TableStoppedError, match="version 5"):
        again.reload()


def test_files_put_together_by_others_are_fine(table, tmp_path):
    assert write(table, plain_rows(10, 12), 10, 12) is AttemptDecision.COMMITTED
    assert deltalake.DeltaTable(str(tmp_path)).optimize.compact()["numFilesRemoved"] == 2
    assert write(table, plain_rows(12, 14), 12, 14) is AttemptDecision.COMMITTED
    assert offsets(tmp_path) == list(range(14))
    assert len(opened(tmp_path).files()) == 1


def test_rows_that_others_add_are_told_of(table, tmp_path, caplog):
    deltalake.write_deltalake(str(tmp_path), plain_rows(90, 92), mode="append")
    assert write(table, plain_rows(10, 12), 10, 12) is AttemptDecision.COMMITTED
    assert "WRITE by others (version 2) added 1 files" in caplog.text
    # Our commit says the version that it makes: it was not put behind the other one by itself.
    marker = progress.marker_application(TOPIC.topic_id)
    assert table.handle.transaction_version(marker) == table.version == 3


def test_a_property_with_which_progress_is_forgotten_stops_the_table(table, tmp_path):
    set_property(tmp_path, "delta.setTransactionRetentionDuration", "interval 1 days")
    with pytest.raises(TableStoppedError, match="has the property delta"):
        table.reload()
    with pytest.raises(TableStoppedError) as stopped:
        opened(tmp_path)
    assert stopped.value.kind is StopKind.PROPERTIES


def test_a_topic_that_was_made_anew_stops_the_table_until_its_id_is_set(table, tmp_path):
    anew = LakeTopic(name="trips", topic_id=uuid.UUID(int=78))
    with pytest.raises(TableStoppedError) as stopped:
        opened(tmp_path, topic=anew)
    text = topic_id_to_text(anew.topic_id)
    assert stopped.value.kind is StopKind.RECREATED
    assert f"('{TOPIC_ID}' = '{text}')" in str(stopped.value)
    set_property(tmp_path, TOPIC_ID, text)
    again = opened(tmp_path, topic=anew)
    assert again.progress([0]) == {}
    assert write(again, plain_rows(0, 2), None, 2) is AttemptDecision.COMMITTED
    assert opened(tmp_path, topic=anew).progress([0])[0].end_offset == 2
    with pytest.raises(TableStoppedError):
        table.reload()


def test_a_table_that_others_made_is_left_alone(tmp_path):
    deltalake.write_deltalake(str(tmp_path), plain_rows(0, 2))
    with pytest.raises(TableStoppedError, match="was not made for a topic"):
        opened(tmp_path)


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_table_that_was_dropped_is_not_written_on(table, tmp_path, comes_back):
    shutil.rmtree(tmp_path / "_delta_log")
    if comes_back:
        other = opened(tmp_path, topic=LakeTopic(name="x", topic_id=uuid.UUID(int=9)))
        assert write(other, plain_rows(0, 1), None, 1) is AttemptDecision.COMMITTED
    with pytest.raises((TableStoppedError, StoreError)) as stopped:
        table.reload()
        write(table, plain_rows(10, 12), 10, 12)
    assert "\n" not in str(stopped.value)
    assert not (tmp_path / "_delta_log" / f"{2:020d}.json").exists()


def test_a_log_that_no_longer_tells_what_happened_stops_the_table(table, tmp_path):
    foreign = deltalake.DeltaTable(str(tmp_path))
    deltalake.write_deltalake(foreign, plain_rows(90, 92), mode="append")
    deltalake.write_deltalake(foreign, plain_rows(92, 93), mode="append")
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(TableStoppedError, match="versions 2 to 3"):
        opened(tmp_path)
    set_property(tmp_path, ACCEPTED_VERSION, "3")
    assert opened(tmp_path).progress([0])[0].end_offset == 10


def test_columns_are_added_before_rows_have_them(table, tmp_path):
    types = {"id": "BIGINT", "text": "STRING", "more": "DATE"}
    wider = typed_shape("trips", schema_of_types(types))
    table.grow(wider)
    rows = plain_rows(10, 12)
    rows = rows.append_column("more", pa.nulls(2, pa.date32())).select(wider.row_schema.names)
    assert write(table, rows, 10, 12, shape=wider) is AttemptDecision.COMMITTED
    assert "more" in [each.name for each in deltalake.DeltaTable(str(tmp_path)).schema().fields]
    assert offsets(tmp_path) == list(range(12))
    # A second instance finds nothing to do.
    assert not opened(tmp_path, wider).growth(wider).is_needed


def test_a_column_that_rows_no_longer_have_may_be_null(tmp_path):
    types = {"id": "BIGINT", "text": "STRING"}
    strict = opened(tmp_path, typed_shape("trips", schema_of_types(types, ("id", "text"))))
    less = typed_shape("trips", schema_of_types({"id": "BIGINT"}, ("id",)))
    assert strict.growth(less).relaxed == ("text",)
    strict.grow(less)
    nullable = {each.name: each.nullable for each in strict.handle.schema().fields}
    assert (nullable["id"], nullable["text"]) == (False, True)


def test_a_wider_type_stops_the_table(table, tmp_path):
    narrow = typed_shape("trips", schema_of_types({"id": "INT", "text": "STRING"}))
    with pytest.raises(TableStoppedError, match="column 'id' is long, and the topic's is integer"):
        opened(tmp_path, narrow)


def test_gaps_are_accepted_by_a_property(table, tmp_path):
    assert not table.accepts_gaps
    set_property(tmp_path, ACCEPTED_GAPS, "true")
    assert opened(tmp_path).accepts_gaps


def test_a_table_divided_by_columns_reads_back_equal(tmp_path):
    shape = typed_shape("trips", schema_of_types({"id": "BIGINT", "text": "STRING"}), ["text"])
    table = opened(tmp_path, shape)
    texts = pa.array(["a b/é", None, "c=d", "a b/é"])
    rows = plain_rows(0, 4).set_column(1, "text", texts)
    assert write(table, rows, None, 4, shape=shape) is AttemptDecision.COMMITTED
    read = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().sort_by("_offset")
    assert read["text"].to_pylist() == texts.to_pylist()
    assert len(table.files()) == 3
    with pytest.raises(TableStoppedError, match="is divided by"):
        opened(tmp_path)


@pytest.mark.parametrize("location", ["", "ftp://somewhere/x", "gs://bucket/x"])
def test_a_location_that_is_not_supported_is_named(location):
    with pytest.raises(ConfigError, match="location"):
        TableStore(location)


def test_a_folder_that_can_t_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/table.*") as refused:
        TableStore(str(tmp_path / "file" / "table"))
    assert "\n" not in str(refused.value)


def test_a_store_whose_conditional_writes_have_no_effect_is_refused(tmp_path, monkeypatch):
    store = TableStore(str(tmp_path))

    def put(path, value):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(value)
        return True

    monkeypatch.setattr(store, "put_if_absent", put)
    with pytest.raises(TableStoppedError, match="If-None-Match") as refused:
        store.prove_conditional_writes()
    assert refused.value.kind is StopKind.STORE
