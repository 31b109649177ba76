"""The data source that Spark finds under the name `headrace`. It checks options before anything
else happens, so that a wrong one is an AnalysisException and not a failed task.

Source: R-SPARK1, R-SPARK5.
"""

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from connector.errors import OptionError, without_traceback
from connector.log_once import warn_once
from connector.options.sink_options import parse_sink_options
from connector.options.source_options import SourceOptions, parse_source_options
from connector.schema import check_user_schema, source_schema
from connector.spark_version import check_spark_version, limits_micro_batches
from connector.spark_workers import prepare_worker

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from connector.sink.writers import HeadraceBatchWriter, HeadraceStreamWriter
    from connector.source.batch_reader import HeadraceBatchReader
    from connector.source.reading import Reading
    from connector.source.stream_reader import HeadraceStreamReader


class HeadraceDataSource(DataSource):
    """`format("headrace")`: reads topics into rows and writes rows to topics, with the options and
    columns of Spark's Kafka connector. The sink delivers exactly once by default."""

    _reading: "Reading | None" = None
    """The topics' schemas that `schema` has found. Spark pickles them with this object."""

    @without_traceback
    def __init__(self, options: dict[str, str]) -> None:
        check_spark_version()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "headrace"

    @without_traceback
    def schema(self) -> "StructType":
        """The columns of typed topics, of records in Avro, or of a record: those that `columns`
        names, or all. The brokers are asked which topics are typed, a registry for the schema of
        Avro, and what is found goes with this object."""
        from connector.source.reading import find_reading

        prepare_worker()
        self._reading = find_reading(self._source_options)
        plan = self._reading.plan
        return source_schema(self._source_options.columns) if plan is None else plan.spark_schema()

    @without_traceback
    def reader(self, schema: "StructType") -> "HeadraceBatchReader":
        """Serves `spark.read`."""
        from connector.source.batch_reader import HeadraceBatchReader

        prepare_worker()
        return HeadraceBatchReader(self._source_options, self._checked_reading(schema))

    @without_traceback
    def streamReader(self, schema: "StructType") -> "HeadraceStreamReader":
        """Serves `spark.readStream`."""
        if self._source_options.ending is not None:
            raise OptionError(
                "BAD_OPTION",
                "'endingOffsets' and its timestamp forms are for batch reads; a stream has no end",
            )
        reading = self._checked_reading(schema)
        if limits_micro_batches():
            from connector.source.stream_reader import HeadraceStreamReader

            return HeadraceStreamReader(self._source_options, reading)
        from connector.source.older_spark import OlderSparkStreamReader

        return OlderSparkStreamReader(self._source_options, reading)

    @without_traceback
    def writer(self, schema: "StructType", overwrite: bool) -> "HeadraceBatchWriter":
        """Serves `df.write`."""
        from connector.sink.columns_sink import columns_sink
        from connector.sink.writers import HeadraceBatchWriter

        prepare_worker()
        if overwrite:
            raise OptionError(
                "BAD_MODE", "a log can't be overwritten, only appended to: use .mode('append')"
            )
        options = parse_sink_options(self.options)
        typed = columns_sink(schema, options)
        warn_once(options.notes)
        return HeadraceBatchWriter(options, typed)

    @without_traceback
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "HeadraceStreamWriter":
        """Serves `df.writeStream`. `overwrite` stands for the output mode complete, in which each
        micro-batch appends the whole result, as in Spark's Kafka connector."""
        from connector.sink.columns_sink import columns_sink
        from connector.sink.writers import HeadraceStreamWriter

        prepare_worker()
        options = parse_sink_options(self.options, is_stream=True)
        typed = columns_sink(schema, options)
        warn_once(options.notes)
        return HeadraceStreamWriter(options, typed)

    def _checked_reading(self, schema: "StructType") -> "Reading":
        """The topics' schemas. Where the user has given a schema, Spark has not called `schema`,
        and brokers are asked now. OptionError where the user's schema does not fit the topics."""
        from connector.source.reading import find_reading
        from connector.source.tables import check_installed

        options, known = self._source_options, self._reading
        check_installed(options)
        reading = find_reading(options, schema) if known is None else known
        if reading.plan is None:
            check_user_schema(schema, columns=options.columns)
        return reading

    @cached_property
    def _source_options(self) -> SourceOptions:
        return parse_source_options(self.options)
