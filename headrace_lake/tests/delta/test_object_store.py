"""Tables in an object store, by S3's protocol. The server is moto's, with faults in front of it."""

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import deltalake
import pyarrow as pa
import pytest

from headrace_lake.delta.batch_commits import commit_batch
from headrace_lake.delta.compaction import compact
from headrace_lake.delta.data_files import RowFiles
from headrace_lake.delta.log_reading import has_log
from headrace_lake.delta.store import StoreError, TableStore
from headrace_lake.delta.table import LakeTable
from headrace_lake.delta.upkeep import TableUpkeep, UpkeepSettings
from headrace_lake.history.row_group_index import RowGroupIndex
from headrace_lake.history.slice_rows import HistoryColumn, HistoryRead, read_slice
from headrace_lake.history.slices import plan_slices
from headrace_lake.history.table_version import TablePlace, load_version
from headrace_lake.protocol.attempts import AttemptDecision
from headrace_lake.protocol.stops import StopKind, TableStoppedError
from headrace_lake.tests.faulty_store import BUCKET, OPTIONS, faulty_store
from headrace_lake.tests.lake_tables import PLAIN, TOPIC, as_batch, plain_rows, write


@pytest.fixture(scope="module")
def served():
    with faulty_store() as (_, url, faults):
        yield url, faults


@pytest.fixture
def faults(served):
    faults = served[1]
    yield faults
    faults.heal()


@pytest.fixture
def store(served, faults, request):
    options = {**OPTIONS, "AWS_ENDPOINT_URL": served[0]}
    return TableStore(f"s3://{BUCKET}/{request.node.name}", options)


def offsets(store) -> list[int]:
    table = deltalake.DeltaTable(store.url, storage_options=store.options)
    return sorted(table.to_pyarrow_table(columns=["_offset"])["_offset"].to_pylist())


def test_a_table_is_written_compacted_and_swept(store):
    table, other = (LakeTable.open(store, TOPIC, PLAIN) for _ in range(2))
    assert write(table, plain_rows(0, 10), None, 10) is AttemptDecision.COMMITTED
    assert write(other, plain_rows(0, 5), None, 5) is AttemptDecision.FENCED
    assert write(other, plain_rows(10, 15), 10, 15) is AttemptDecision.COMMITTED
    assert compact(LakeTable.open(store, TOPIC, PLAIN), 10**6, whole_tail=True).files_after == 1
    upkeep = TableUpkeep(LakeTable.open(store, TOPIC, PLAIN), UpkeepSettings(safe_hours=0))
    assert upkeep.sweep() == 3
    assert offsets(store) == list(range(15))
    assert len([each for each in store.list() if each.path.endswith(".parquet")]) == 1


def test_an_answer_that_was_lost_doubles_nothing(store, faults):
    table = LakeTable.open(store, TOPIC, PLAIN)
    for first in range(0, 30, 10):
        faults.lost_answers = 1
        assert write(table, plain_rows(first, first + 10), first or None, first + 10) is (
            AttemptDecision.COMMITTED
        )
        assert faults.lost_answers == 0
    assert offsets(store) == list(range(30))
    assert table.version == 3


def test_a_store_that_takes_no_notice_of_conditions_is_refused(store, faults):
    faults.drops_conditions = True
    with pytest.raises(TableStoppedError, match="If-None-Match") as refused:
        LakeTable.open(store, TOPIC, PLAIN)
    assert refused.value.kind is StopKind.STORE
    assert "\n" not in str(refused.value)


def test_a_store_that_is_away_is_named_in_one_line(served, faults):
    options = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_REGION": "x",
        "AWS_ALLOW_HTTP": "true",
    }
    options |= {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    away = TableStore("s3://lake/away", options)
    with pytest.raises((StoreError, TableStoppedError), match="s3://lake/away") as failed:
        LakeTable.open(away, TOPIC, PLAIN)
    assert "\n" not in str(failed.value)


def test_a_store_that_comes_back_gets_the_same_batch(store, faults):
    table = LakeTable.open(store, TOPIC, PLAIN)
    batch = as_batch(table, None, 5)
    files = RowFiles(store, PLAIN.row_schema, order=table.version + 1)
    files.write(plain_rows(0, 5))
    done = files.finish()
    faults.is_away = True
    with pytest.raises(StoreError) as failed:
        commit_batch(table, batch, done)
    assert "\n" not in str(failed.value)
    faults.is_away = False
    assert committed(table, batch, done) is AttemptDecision.COMMITTED
    assert offsets(store) == list(range(5))


def test_a_slice_is_read_and_one_whose_file_is_gone_from_a_later_version(store):
    write(LakeTable.open(store, TOPIC, PLAIN), plain_rows(0, 10), None, 10)
    write(LakeTable.open(store, TOPIC, PLAIN), plain_rows(10, 20), 10, 20)
    options = {name.lower(): text for name, text in store.options.items()}
    place = TablePlace(location=store.url, options=options)

    def newest():
        return load_version(place, TOPIC, [0])

    wanted = {0: (3, 17)}
    (part,) = plan_slices(RowGroupIndex().groups(newest(), wanted), wanted, target_bytes=10**6)
    column = HistoryColumn(name="id", column="id", type=pa.int64())
    read = HistoryRead(topic="trips", columns=(column,))

    def ids():
        batches = read_slice(place, part, read, newest)
        return [each for batch in batches for each in batch["id"].to_pylist()]

    assert ids() == list(range(3, 17))
    before = {each.path for each in newest().files}
    compact(LakeTable.open(store, TOPIC, PLAIN), 10**6, whole_tail=True)
    for each in before:
        store.delete(each)
    assert ids() == list(range(3, 17))


def committed(table, batch, files) -> AttemptDecision:
    """As a caller has to do it: an error leaves the batch open, and it is committed again."""
    for _ in range(5):
        with contextlib.suppress(StoreError):
            return commit_batch(table, batch, files)
    return commit_batch(table, batch, files)


def test_a_store_that_hangs_holds_no_other_thread_up():
    """It takes connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as hung, ThreadPoolExecutor(1) as pool:
        options = {**OPTIONS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{hung.getsockname()[1]}"}
        asked = pool.submit(
            has_log, TableStore(f"s3://{BUCKET}/hung", {**options, "timeout": "5s"})
        )
        # This thread goes on.
        client, _ = hung.accept()
        assert not asked.done()
        client.close()
        hung.close()
        with pytest.raises(StoreError, match="could not list"):
            asked.result()
