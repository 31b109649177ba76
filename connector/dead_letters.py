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

`headrace replay-dead-letters` sends them back.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from connector.errors import ConnectorError
from connector.schema import HEADERS_DDL
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

_RECORD = ("key", "value", "topic", "partition", "offset", "timestamp")
_SINK = ("key", "value", "headers", "topic")


def with_dead_letters(
    frame: "DataFrame",
    *,
    reason: "Column | str",
    topic: str,
    accepted: "Mapping[str, Column | str]",
) -> "DataFrame":
    """The rows of `frame` as one sink writes them: key, value, headers, topic.

    `frame` has the columns of the source, and any of your own. `reason` is text where a record is
    rejected, null where it is accepted. `accepted` says how accepted records are written: `value`
    and `topic`, optionally `key` and `headers`. Rejected records go to `topic` as they came, with
    their headers if the source has `includeHeaders`. ConnectorError BAD_COLUMN.
    """
    from pyspark.sql import functions as F

    _check(frame, accepted)
    why = _column(reason)
    is_rejected = why.isNotNull()
    letter = {
        "key": F.col("key"),
        "value": F.col("value"),
        "headers": _letter_headers(frame, why),
        "topic": F.lit(topic),
    }
    types = {"key": "binary", "value": "binary", "headers": HEADERS_DDL, "topic": "string"}
    columns = []
    for name in _SINK:
        given = _column(accepted[name]) if name in accepted else F.lit(None)
        either = F.when(is_rejected, letter[name]).otherwise(given.cast(types[name]))
        columns.append(either.alias(name))
    return frame.select(*columns)


def dead_letters(frame: "DataFrame", *, reason: "Column | str", topic: str) -> "DataFrame":
    """The rejected records alone, as `with_dead_letters` makes them."""
    why = _column(reason)
    return with_dead_letters(
        frame.where(why.isNotNull()),
        reason=why,
        topic=topic,
        accepted={"value": "value", "topic": "topic"},
    )


def _letter_headers(frame: "DataFrame", why: "Column") -> "Column":
    """The headers of the record without those of an earlier dead letter, and those of this one."""
    from pyspark.sql import functions as F

    def header(name: str, value: "Column") -> "Column":
        return F.struct(
            F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value")
        )

    # The epoch itself stands for a record without a time, as -1 does in Kafka.
    ours = F.array(
        header(TOPIC, F.col("topic")),
        header(PARTITION, F.col("partition")),
        header(OFFSET, F.col("offset")),
        header(TIMESTAMP, F.coalesce(F.unix_millis(F.col("timestamp")), F.lit(-1))),
        header(REASON, why),
    )
    if "headers" not in frame.columns:
        return ours
    own = F.filter(F.col("headers"), lambda each: ~each["key"].startswith(PREFIX))
    return F.concat(F.coalesce(own, F.array().cast(HEADERS_DDL)), ours)


def _check(frame: "DataFrame", accepted: Mapping[str, Any]) -> None:
    for name in _RECORD:
        if name not in frame.columns:
            raise ConnectorError(
                "BAD_COLUMN",
                f"the rows have no column '{name}'; with_dead_letters takes all columns of the "
                "source, with .withColumn(…) for what you compute",
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
