"""The data source: what Spark asks of it, and what it answers."""

import logging
import pickle

import pytest
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StringType, StructField, StructType

import pyspark_headrace
from connector import log_once
from connector.data_source import HeadraceDataSource
from connector.errors import OptionError
from connector.spark_classes import DataSourceStreamArrowWriter

SOURCE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
SINK = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
ROWS = StructType([StructField("value", StringType())])


def _source(options):
    return HeadraceDataSource(CaseInsensitiveDict(options))


def test_the_module_that_spark_looks_for_has_the_source():
    assert pyspark_headrace.DefaultSource is HeadraceDataSource
    assert pyspark_headrace.DefaultSource.name() == "headrace"


def test_readers_and_writers_are_of_the_kinds_that_take_arrow_and_can_be_sent_to_tasks():
    source = _source(SOURCE)
    reader, stream = source.reader(source.schema()), source.streamReader(source.schema())
    assert isinstance(pickle.loads(pickle.dumps(reader)), DataSourceReader)
    assert isinstance(pickle.loads(pickle.dumps(stream)), DataSourceStreamReader)
    sink = _source(SINK)
    writer, stream_writer = sink.writer(ROWS, False), sink.streamWriter(ROWS, False)
    assert isinstance(pickle.loads(pickle.dumps(writer)), DataSourceArrowWriter)
    assert isinstance(pickle.loads(pickle.dumps(stream_writer)), DataSourceStreamArrowWriter)


def test_spark_calls_the_stream_writer_by_keyword():
    assert _source(SINK).streamWriter(schema=ROWS, overwrite=True)


def test_headers_are_a_column_only_when_asked_for():
    assert "headers" not in _source(SOURCE).schema().names
    assert "headers" in _source(SOURCE | {"includeHeaders": "true"}).schema().names


def test_a_log_cannot_be_overwritten():
    with pytest.raises(OptionError, match=r"use \.mode\('append'\)"):
        _source(SINK).writer(ROWS, True)


def test_an_option_without_effect_is_logged_once(caplog):
    log_once._logged.clear()
    with caplog.at_level(logging.WARNING):
        _source(SINK).streamWriter(ROWS, False)
        assert caplog.messages == []
        for _ in range(3):
            _source(SINK | {"kafka.linger.ms": "5"}).streamWriter(ROWS, False)
    assert len(caplog.messages) == 1
    assert "'linger.ms' has no effect" in caplog.messages[0]


def test_the_batches_of_a_stream_are_counted_by_spark():
    part, number = {"sinkPart": "p"}, {"batchId": "1"}
    for given in (number, part, part | number, number | {"deliveryGuarantee": "at-least-once"}):
        with pytest.raises(
            OptionError, match=r"^\[WRONG_OPTION\] '(batchId|sinkPart)' is .* leave it"
        ):
            _source(SINK | {"sinkId": "s"} | given).streamWriter(ROWS, False)
