"""The options of the source.

Source: the options of Spark's Kafka connector, with the same names, values and defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from connector.errors import OptionError
from connector.options.avro_options import AvroSourceOptions, parse_avro_source
from connector.options.connection_options import ConnectionOptions, parse_connection
from connector.options.given_options import (
    INT32_MAX,
    INT64_MAX,
    GivenOptions,
    bad_option,
    parse_names,
)
from connector.options.offset_specs import (
    AtTimestamp,
    OffsetSpec,
    parse_offsets,
    parse_offsets_by_timestamp,
)
from connector.options.subscription import Subscription, parse_subscription
from connector.options.table_options import TableOptions, is_without_remark, parse_tables
from connector.schema import ALL_COLUMNS, COLUMNS

DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
DEFAULT_FETCH_BYTES = 4 * 1024 * 1024
"""The size of one fetch from one partition: about 40,000 records of 100 B, the batch size that
Spark processes fastest."""

MAX_GROUP_NAME_LENGTH = 200
"""A name of this length, with the query's own name appended, is still one that brokers accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of the source, parsed. `starting` and `ending` are None where no option was
    given, because the defaults of batch and stream differ."""

    connection: ConnectionOptions
    subscription: Subscription
    starting: OffsetSpec | None
    ending: OffsetSpec | None
    fall_back_to_latest: bool
    """Whether to begin at the end, instead of failing, where no record is at or after a starting
    timestamp."""

    fail_on_data_loss: bool
    chosen_columns: tuple[str, ...] | None
    """The names of the option `columns`, as they were given. None: all. The possible names depend
    on the topics: see `columns` for records, `source/typed` for columns of a schema."""

    include_headers: bool | None
    where: str | None
    """The condition on rows of typed topics, as text."""

    isolation_level: str
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    min_records_per_partition: int | None
    """The fewest offsets that a task of Spark should read. 0 or 1: each range has a task of its
    own. None: as `source/range_packing.py` chooses."""

    max_records_per_partition: int | None
    max_bytes_per_partition: int | None
    """The most that a task of Spark should read, by an estimate."""

    group_id: str | None
    """The consumer group in which a stream stores how far it has read, for lag tools."""

    group_id_prefix: str | None
    """The group is this, `-` and a name of the query's own. `group_id` takes precedence."""

    poll_timeout_ms: int
    fetch_bytes: int
    avro: AvroSourceOptions | None
    """How Avro is read; None: keys and values are bytes."""

    tables: TableOptions | None
    """Where to read what retention took from the logs; None: logs alone."""

    tells_of_tables: bool
    """Whether to say that a topic whose log has lost its beginning has a table."""

    notes: tuple[str, ...]
    """Warnings for options that were given and have no effect."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a record that are yielded, in the order of `schema.ALL_COLUMNS`: all
        except its headers, unless `columns` or `includeHeaders` say otherwise. OptionError for
        another name."""
        headers = bool(self.include_headers)
        if self.chosen_columns is None:
            return ALL_COLUMNS if headers else COLUMNS
        by_lower_name = {name.lower(): name for name in ALL_COLUMNS}
        asked = {name.lower() for name in self.chosen_columns}
        if not asked <= by_lower_name.keys():
            text = ",".join(self.chosen_columns)
            raise bad_option("columns", f"one or more of {', '.join(ALL_COLUMNS)}", text)
        if self.include_headers is not None and headers != ("headers" in asked):
            raise OptionError("BAD_OPTION", "'columns' and 'includeHeaders' contradict each other")
        return tuple(name for lowered, name in by_lower_name.items() if lowered in asked)


def parse_source_options(options: Mapping[str, str]) -> SourceOptions:
    """OptionError for the first option that is unknown, misspelled or impossible."""
    given = GivenOptions(options, side="source")
    min_offsets, max_offsets = _bounds(given, "{}OffsetsPerTrigger", low=1)
    min_records, max_records = _bounds(given, "{}RecordsPerPartition", low=0)
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
    isolation_level = _isolation_level(given)
    tables = parse_tables(given, isolation_level=isolation_level)
    return SourceOptions(
        connection=parse_connection(given),
        subscription=parse_subscription(given),
        starting=_offset_spec(given, "starting"),
        ending=_offset_spec(given, "ending"),
        fall_back_to_latest=strategy == "latest",
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        chosen_columns=_chosen_columns(given),
        include_headers=_include_headers(given),
        where=_where(given),
        isolation_level=isolation_level,
        max_offsets_per_trigger=max_offsets,
        min_offsets_per_trigger=min_offsets,
        max_trigger_delay_ms=given.duration_ms(
            "maxTriggerDelay", default=DEFAULT_MAX_TRIGGER_DELAY_MS
        ),
        min_partitions=given.integer("minPartitions", low=1, high=INT32_MAX),
        min_records_per_partition=min_records,
        max_records_per_partition=max_records,
        max_bytes_per_partition=given.integer("maxBytesPerPartition", low=1, high=INT64_MAX),
        group_id=_group_name(given, "group.id"),
        group_id_prefix=_group_name(given, "groupIdPrefix"),
        poll_timeout_ms=given.integer("kafkaConsumer.pollTimeoutMs", low=1, high=INT32_MAX)
        or DEFAULT_POLL_TIMEOUT_MS,
        fetch_bytes=given.integer("max.partition.fetch.bytes", low=1024, high=INT32_MAX)
        or DEFAULT_FETCH_BYTES,
        avro=parse_avro_source(given),
        tables=tables,
        tells_of_tables=tables is None and not is_without_remark(given),
        notes=given.notes,
    )


def _bounds(given: GivenOptions, form: str, *, low: int) -> tuple[int | None, int | None]:
    """The options `min…` and `max…` of `form`; None: not given. A maximum of 0 is an error."""
    names = form.format("min"), form.format("max")
    least = given.integer(names[0], low=low, high=INT64_MAX)
    most = given.integer(names[1], low=1, high=INT64_MAX)
    if most is not None and least is not None and least > most:
        raise OptionError(
            "BAD_OPTION", f"'{names[0]}' ({least}) is greater than '{names[1]}' ({most})"
        )
    return least, most


def _offset_spec(given: GivenOptions, which: str) -> OffsetSpec | None:
    """The most specific of the three options wins, as in Spark's Kafka connector."""
    timestamp_ms = given.integer(f"{which}Timestamp", low=0, high=INT64_MAX)
    if timestamp_ms is not None:
        return AtTimestamp(timestamp_ms=timestamp_ms)
    by_timestamp = given.text(f"{which}OffsetsByTimestamp")
    if by_timestamp is not None:
        return parse_offsets_by_timestamp(f"{which}OffsetsByTimestamp", by_timestamp)
    offsets = given.text(f"{which}Offsets")
    return None if offsets is None else parse_offsets(f"{which}Offsets", offsets)


def _group_name(given: GivenOptions, name: str) -> str | None:
    text = given.text(name)
    if text is not None and not 0 < len(text) <= MAX_GROUP_NAME_LENGTH:
        raise bad_option(name, f"a name of 1 to {MAX_GROUP_NAME_LENGTH} characters", text)
    return text


def _chosen_columns(given: GivenOptions) -> tuple[str, ...] | None:
    text = given.text("columns")
    return None if text is None else parse_names("columns", text)


def _include_headers(given: GivenOptions) -> bool | None:
    if given.text("includeHeaders") is None:
        return None
    return given.boolean("includeHeaders", default=False)


def _where(given: GivenOptions) -> str | None:
    text = given.text("where")
    if text is not None and not text.strip():
        raise bad_option("where", "a condition such as fare > 10 AND id IN (1, 2)", text)
    return text


def _isolation_level(given: GivenOptions) -> str:
    levels = ("read_committed", "read_uncommitted")
    chosen = {given.choice(name, levels) for name in ("isolationLevel", "isolation.level")}
    chosen.discard(None)
    if len(chosen) > 1:
        raise OptionError(
            "BAD_OPTION", "'isolationLevel' and 'kafka.isolation.level' contradict each other"
        )
    return chosen.pop() or levels[0] if chosen else levels[0]
