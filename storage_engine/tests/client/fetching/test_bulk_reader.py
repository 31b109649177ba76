"""Splits of topics with a schema: the same rows and columns whenever they are read (R-CLI5)."""

import pyarrow as pa
import pytest

from storage_engine.client.fetching.bulk_reader import BulkReader
from storage_engine.core.errors import ConfigError, HeadraceError
from storage_engine.core.typed.topic_schema import UnknownSchemaVersionError
from storage_engine.tests.client.support.typed_topics import ROWS, WIDER, typed_batch


def bulk(fake) -> BulkReader:
    return BulkReader({"bootstrap.servers": fake.bootstrap_servers})


def test_a_split_has_the_columns_of_its_version_whatever_the_schema_becomes(typed):
    with bulk(typed) as reader:
        splits = reader.splits(["t"], split_offsets=250)
        assert [(split.start_offset, split.schema_version) for split in splits] == [
            (0, 1),
            (200, 1),
            (400, 1),
        ]
        typed.schemas["t"] = WIDER
        for _ in range(2):
            table = pa.Table.from_batches(reader.read(splits[1]))
            assert table.column_names == ["id", "tag", "fare"]
            assert table["id"].to_pylist() == list(range(200, 400))
        assert reader.splits(["t"])[0].schema_version == 2


def test_a_split_is_projected_and_filtered_with_columns_about_its_rows(typed):
    with bulk(typed) as reader:
        (split,) = reader.splits(["t"])
        selection = {"columns": ["_offset", "ID", "_partition", "_topic"], "where": "fare = 7.0"}
        table = pa.Table.from_batches(reader.read(split, **selection))
        assert table.schema == reader.arrow_schema(split, **selection)
        assert table.to_pylist() == [
            {"_offset": n, "id": n, "_partition": 0, "_topic": "t"} for n in range(70, 80)
        ]


def test_a_version_that_the_asked_broker_had_not_heard_of_is_asked_for_again(typed):
    batch = typed_batch(typed.topic_ids["t"], {"id": [1], "note": ["new"]}, WIDER)
    typed.partition("t").append(batch)
    with bulk(typed) as reader:
        (split,) = reader.splits(["t"])
        typed.schemas["t"] = WIDER
        numbers = [n for rows in reader.read(split, columns=["id"]) for n in rows["id"].to_pylist()]
        assert numbers == [*range(ROWS), 1]
        (split,) = reader.splits(["t"])
        typed.schemas["t"] = WIDER
        table = pa.Table.from_batches(reader.read(split))
        assert table["note"].null_count == ROWS


def test_a_split_whose_topic_changed_under_it_is_to_be_made_anew(typed):
    batch = typed_batch(typed.topic_ids["t"], {"id": [1], "note": ["new"]}, WIDER)
    typed.partition("t").append(batch)
    with bulk(typed) as reader:
        (split,) = reader.splits(["t"])
        typed.schemas["t"] = WIDER
        with pytest.raises(HeadraceError, match="changed while it was divided into splits"):
            list(reader.read(split))


def test_a_version_that_no_broker_tells_is_an_error(typed, monkeypatch):
    monkeypatch.setattr("storage_engine.client.fetching.bulk_reader.SCHEMA_WAIT_MS", 200)
    batch = typed_batch(typed.topic_ids["t"], {"id": [1], "note": ["new"]}, WIDER)
    typed.partition("t").append(batch)
    with bulk(typed) as reader:
        (split,) = reader.splits(["t"])
        with pytest.raises(UnknownSchemaVersionError, match="rows have version 2 of its schema"):
            list(reader.read(split))


@pytest.mark.parametrize(
    ("selection", "complaint"),
    [
        ({"columns": ["idd"]}, "idd"),
        ({"columns": []}, "columns is empty"),
        ({"columns": "id"}, r"give \['id'\]"),
        ({"columns": ["id", "Id"]}, "has 'Id' twice"),
        ({"columns": ["_ofset"]}, "_ofset"),
        ({"where": "fare >"}, "condition"),
        ({"where": "nothing = 1"}, "nothing"),
    ],
)
def test_wrong_columns_and_conditions_are_told_before_anything_is_read(typed, selection, complaint):
    with bulk(typed) as reader:
        (split,) = reader.splits(["t"])
        with pytest.raises(ConfigError, match=complaint) as caught:
            list(reader.read(split, **selection))
        assert "\n" not in str(caught.value)
    assert typed.count("Fetch") == 0


def test_records_have_no_columns_to_choose(fake):
    fake.add_topic("t", [1])
    with bulk(fake) as reader:
        fake.partition("t").end_offset = 1
        (split,) = reader.splits(["t"])
        with pytest.raises(ConfigError, match="topic 't' has no schema"):
            list(reader.read(split, columns=["id"]))
