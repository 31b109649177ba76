"""The options that name tables."""

import pytest

from connector.errors import OptionError
from connector.options.table_options import TableOptions
from connector.tests.options.parsed import source


def test_a_table_is_a_path_or_a_url_with_options_of_its_store():
    options = source(table="s3://b/trips", **{"table.store.aws_region": "x"})
    assert options.tables == TableOptions(single="s3://b/trips", store={"aws_region": "x"})
    assert options.tables.location_of("trips", {"trips"}) == "s3://b/trips"
    assert "s3://" in repr(options.tables)
    assert "aws_region" not in repr(options.tables)


def test_tables_of_several_topics_are_found_by_their_names_in_lower_case():
    options = source(**{"table.trips": "/lake/trips", "table.root": "/lake"})
    assert options.tables.root == "/lake"
    assert options.tables.location_of("Trips", {"Trips", "other"}) == "/lake/trips"
    assert options.tables.location_of("other", {"Trips", "other"}) is None
    with pytest.raises(OptionError, match="differ in case alone"):
        options.tables.location_of("Trips", {"Trips", "trips"})


def test_none_reads_the_log_alone_and_without_a_remark():
    assert source(table="None").tables is None
    assert not source(table="none").tells_of_tables
    assert source().tells_of_tables
    assert not source(table="/lake/trips").tells_of_tables


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"table": "lake/trips"}, "an absolute path or a URL"),
        ({"table.trips": "trips"}, "an absolute path or a URL"),
        ({"table": "/a", "table.root": "/b"}, "contradicts"),
        ({"table": "none", "table.trips": "/b"}, "contradicts"),
        ({"table.store.aws_region": "x"}, "needs a table"),
        ({"table": "/a", "isolationLevel": "read_uncommitted"}, "committed transactions only"),
    ],
)
def test_options_that_say_nothing_or_two_things_are_refused(given, told):
    with pytest.raises(OptionError, match=told):
        source(**given)


def test_secrets_of_a_store_are_warned_of():
    options = source(table="s3://b/t", **{"table.store.AWS_SECRET_ACCESS_KEY": "x"})
    assert any("is a secret" in note for note in options.notes)


def test_tables_are_options_of_the_source_alone():
    from connector.tests.options.parsed import sink

    with pytest.raises(OptionError, match="WRONG_OPTION"):
        sink(table="/a")
