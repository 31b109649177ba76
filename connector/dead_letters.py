"""Sends records that a pipeline rejects to a topic of their own, with the reason and their origin.
One query writes accepted and rejected records, so that each is written once, as one or the other.

    parsed = orders.withColumn("order", F.from_json(F.expr("cast(value as string)"), "item string"))
    rows = with_dead_letters(
        parsed,
        reason=F.when(F.col("order.item").isNull(), "no item"),
        topic="orders-rejected",
        accepted={"topic": F.lit("orders-checked"), "key": "key", "value": F.to_json("order")},
    )
    rows.writeStream.format("headrace")…

Rows of a typed topic become letters as JSON, as clients that know no schemas send it, for which
they must be read with `_topic`, `_partition`, `_offset` and `_timestamp` among their columns. Of
records in Avro, read with `mode=dead-letter`, a letter has the bytes of the record, as they came.

`headrace replay-dead-letters` sends them back.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from connector.errors import ConnectorError
from connector.schema import HEADERS_DDL
from connector.typed_columns import HEADERS, METADATA_COLUMNS, RAW_KEY, RAW_VALUE
from connector.typed_columns import TOPIC as TOPIC_COLUMN
from storage_engine.protocol.dead_letter_headers import (
    OFFSET,
    PARTITION,
    PREFIX,
    REASON,
    TIMESTAMP,
    TOPIC,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLACE = ("topic", "partition", "offset", "timestamp")
_RECORD = ("key", "value", *_PLACE)
_TYPED = tuple(f"_{name}" for name in _PLACE)
_SINK = ("key", "value", "headers", "topic")

_JSON_FORMATS = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
}
"""The JSON options for the formats that brokers accept in rows of typed topics."""


def with_dead_letters(
    frame: "DataFrame",
    *,
    reason: "Column | str",
    topic: str,
    accepted: "Mapping[str, Column | str]",
    columns: Sequence[str] | None = None,
) -> "DataFrame":
    """The rows of `frame` as one sink writes them: key, value, headers, topic.

    `frame` has the columns of the source, and any of your own. `reason` is text where a record is
    rejected, null where it is accepted. `accepted` says how accepted records are written: `value`
    and `topic`, optionally `key` and `headers`. Rejected records go to `topic` as they came, with
    their headers if the source has `includeHeaders`. Of a typed topic `columns` are the columns of
    a letter; None: all of `frame` that don't begin with `_`. ConnectorError BAD_COLUMN.
    """
    from pyspark.sql import functions as F

    is_typed = TOPIC_COLUMN in frame.columns
    _check(frame, accepted, _needed(frame))
    if RAW_VALUE in frame.columns:
        key, value = F.col(RAW_KEY), F.col(RAW_VALUE)
    elif is_typed:
        key, value = F.lit(None), _as_json(frame, columns)
    else:
        key, value = F.col("key"), F.col("value")
    why = _column(reason)
    is_rejected = why.isNotNull()
    letter = {
        "key": key,
        "value": value,
        "headers": _letter_headers(frame, why, "_" if is_typed else ""),
        "topic": F.lit(topic),
    }
    types = {"key": "binary", "value": "binary", "headers": HEADERS_DDL, "topic": "string"}
    written = []
    for name in _SINK:
        given = _column(accepted[name]) if name in accepted else F.lit(None)
        either = F.when(is_rejected, letter[name].cast(types[name])).otherwise(
            given.cast(types[name])
        )
        written.append(either.alias(name))
    return frame.select(*written)


def dead_letters(
    frame: "DataFrame",
    *,
    reason: "Column | str",
    topic: str,
    columns: Sequence[str] | None = None,
) -> "DataFrame":
    """The rejected records alone, as `with_dead_letters` makes them."""
    from pyspark.sql import functions as F

    why = _column(reason)
    return with_dead_letters(
        frame.where(why.isNotNull()),
        reason=why,
        topic=topic,
        accepted={"value": F.lit(None), "topic": F.lit(None)},
        columns=columns,
    )


def _as_json(frame: "DataFrame", columns: Sequence[str] | None) -> "Column":
    """The row as a JSON object of these columns."""
    from pyspark.sql import functions as F

    if columns is None:
        columns = [each for each in frame.columns if not each.startswith("_")]
    if not columns:
        raise ConnectorError(
            "BAD_COLUMN",
            "the rows have no column that a dead letter can hold: give others in columns",
        )
    for name in columns:
        if name not in frame.columns or name in METADATA_COLUMNS:
            raise ConnectorError(
                "BAD_COLUMN", f"the rows have no column '{name}' for the dead letter"
            )
    quoted = [F.col(f"`{each.replace('`', '``')}`") for each in columns]
    return F.to_json(F.struct(*quoted), _JSON_FORMATS)


def _letter_headers(frame: "DataFrame", why: "Column", prefix: str) -> "Column":
    """The record's headers without those of an earlier dead letter, and the headers of this letter.
    `prefix`: that of the origin's columns."""
    from pyspark.sql import functions as F

    def header(name: str, value: "Column") -> "Column":
        return F.struct(
            F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value")
        )

    # The epoch itself stands for a record without a time, as -1 does in Kafka.
    ours = F.array(
        header(TOPIC, F.col(f"{prefix}topic")),
        header(PARTITION, F.col(f"{prefix}partition")),
        header(OFFSET, F.col(f"{prefix}offset")),
        header(TIMESTAMP, F.coalesce(F.unix_millis(F.col(f"{prefix}timestamp")), F.lit(-1))),
        header(REASON, why),
    )
    headers = HEADERS if prefix else "headers"
    if headers not in frame.columns:
        return ours
    own = F.filter(F.col(headers), lambda each: ~each["key"].startswith(PREFIX))
    return F.concat(F.coalesce(own, F.array().cast(HEADERS_DDL)), ours)


def _needed(frame: "DataFrame") -> Sequence[str]:
    if RAW_VALUE in frame.columns:
        return (RAW_KEY, *_TYPED)
    return _TYPED if TOPIC_COLUMN in frame.columns else _RECORD


def _check(
    frame: "DataFrame", accepted: "Mapping[str, Column | str]", needed: Sequence[str]
) -> None:
    for name in needed:
        if name not in frame.columns:
            raise ConnectorError(
                "BAD_COLUMN",
                f"the rows have no column '{name}'; with_dead_letters takes all columns of the "
                "source, with .withColumn(…) for what you compute; of a typed topic it takes "
                f"{', '.join(_TYPED)}, which the option 'columns' names",
            )
    for name in accepted:
        if name not in _SINK:
            raise ConnectorError(
                "BAD_COLUMN",
                f"'{name}' in accepted can't be written; possible are {', '.join(_SINK)}",
            )
    for name in ("value", "topic"):
        if name not in accepted:
            raise ConnectorError("BAD_COLUMN", f"'{name}' is missing in accepted")


def _column(column: "Column | str") -> "Column":
    from pyspark.sql import functions as F

    return F.col(column) if isinstance(column, str) else column
