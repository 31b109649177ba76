"""The keyed sink, where something is missing."""

import sys
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkAttributeError

import connector.database
from connector import ConnectorError, KeyedSink


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
