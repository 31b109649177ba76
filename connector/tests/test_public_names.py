"""What `from connector import …` offers, and how it fails where something is missing."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkAttributeError

import connector.database
from connector import ConnectorError, KeyedSink, with_dead_letters

SOURCE = ["key", "value", "topic", "partition", "offset", "timestamp"]


def test_only_what_a_user_needs_is_public_and_documented():
    assert connector.__all__ == [
        "ConnectorError",
        "KeyedSink",
        "LagListener",
        "OffsetsBehindLatest",
        "QueryMetrics",
        "dead_letters",
        "in_session",
        "lag_of",
        "register",
        "with_dead_letters",
    ]
    for name in connector.__all__:
        assert getattr(connector, name).__doc__
        assert name in str(connector.__doc__)


def test_importing_it_costs_a_worker_nothing():
    heavy = "{'pyarrow', 'numpy', 'sqlalchemy', 'pyspark.sql'}"
    code = f"import connector, sys; print(sorted({heavy} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


class Frame:
    """Stands for a micro-batch; of Spark Connect's kind where there is no context."""

    def __init__(self, query_id):
        self._query_id = query_id

    @property
    def sparkSession(self):
        if self._query_id is ...:
            return Frame(self._query_id)
        return SimpleNamespace(
            sparkContext=SimpleNamespace(getLocalProperty=lambda name: self._query_id)
        )

    @property
    def sparkContext(self):
        raise PySparkAttributeError("not with Spark Connect")


@pytest.mark.parametrize("query_id", [None, ...])
def test_a_query_that_has_no_id_is_one_line(query_id):
    with pytest.raises(
        ConnectorError, match=r"^\[NO_QUERY_ID\] Spark does not pass the query's id"
    ):
        KeyedSink("sqlite://", table="t")(Frame(query_id), 0)


def test_the_keyed_sink_names_the_extra_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.delitem(sys.modules, "connector.database.keyed_table", raising=False)
    monkeypatch.delattr(connector.database, "keyed_table", raising=False)
    with pytest.raises(ConnectorError) as raised:
        KeyedSink("sqlite://", table="t")(Frame("query"), 0)
    assert str(raised.value) == (
        "[MISSING_PACKAGE] KeyedSink needs SQLAlchemy: pip install 'headrace[sql]'"
    )


def test_the_password_of_a_database_is_not_shown():
    assert "secret" not in repr(KeyedSink("postgresql://me:secret@db/shop", table="orders"))


@pytest.mark.parametrize(
    ("columns", "accepted", "message"),
    [
        (SOURCE[:4], {"value": "v", "topic": "t"}, "the rows have no column 'offset'"),
        (
            SOURCE,
            {"value": "v", "topic": "t", "partition": "p"},
            "'partition' in accepted can't be",
        ),
        (SOURCE, {"value": "v"}, "'topic' is missing in accepted"),
    ],
)
def test_dead_letters_need_their_origin_and_accepted_rows_a_place(columns, accepted, message):
    frame = SimpleNamespace(columns=columns)
    with pytest.raises(ConnectorError, match=r"^\[BAD_COLUMN\] ") as raised:
        with_dead_letters(frame, reason="why", topic="dead", accepted=accepted)
    assert message in str(raised.value)
