"""Decides, where the writer is made, whether rows with columns of their own are rows of a typed
topic or become records in Avro.
"""

from typing import TYPE_CHECKING, TypeAlias

from connector.errors import OptionError, in_one_line
from connector.options.sink_options import SinkOptions
from connector.sink.avro.avro_sink import AvroSink, avro_sink
from connector.sink.typed.rows_check import check_rows
from connector.topic_schemas import TypedSink, known_schema_or_older

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ColumnsSink: TypeAlias = TypedSink | AvroSink


def columns_sink(schema: "StructType", options: SinkOptions) -> ColumnsSink | None:
    """None where rows of `schema` are records. OptionError where they can't be written."""
    if options.avro is None or options.topic is None:
        return check_rows(schema, options)
    with in_one_line():
        known = known_schema_or_older(options.connection, options.topic)
    if known is not None:
        raise OptionError(
            "BAD_OPTION",
            f"'value.format=avro' writes records, and '{options.topic}' is a typed topic, which "
            "takes columns as they are: leave the option out",
        )
    return avro_sink(schema, options)
