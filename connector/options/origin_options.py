"""`idempotentKey`: the columns that say where a row comes from, and the cluster they refer to.

Source: R-SPARK3.
"""

from dataclasses import dataclass, replace

from connector.errors import OptionError
from connector.options.connection_options import ConnectionOptions, parse_servers
from connector.options.given_options import GivenOptions, bad_option

RECORD_COLUMNS = frozenset({"key", "value", "headers"})
"""These make up a record, so they can't be a part of its origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginOptions:
    """The columns with a row's origin, and the cluster with the topics that they name."""

    columns: tuple[str, str, str]
    """The names of the columns for topic, partition and offset, in lower case, as Spark compares
    them."""

    connection: ConnectionOptions | None
    """The connection to the cluster that knows the ids of the topics; None when names alone count.
    """


def parse_origin(given: GivenOptions, sink: ConnectionOptions) -> OriginOptions | None:
    """Parse `idempotentKey`; returns None without it. `sink` is the cluster that rows are written
    to, which also has the source topics unless `originServers` names another."""
    text, servers = given.text("idempotentKey"), given.text("originServers")
    if text is None:
        if servers is not None:
            raise OptionError(
                "MISSING_OPTION",
                "'originServers' needs 'idempotentKey', whose topics it locates: set both",
            )
        return None
    columns = tuple(name.strip().lower() for name in text.split(","))
    if len(columns) != 3 or len(set(columns)) != 3 or not all(columns):
        raise bad_option("idempotentKey", "three columns such as topic,partition,offset", text)
    if not RECORD_COLUMNS.isdisjoint(columns):
        raise bad_option("idempotentKey", "columns other than key, value and headers", text)
    if given.text("sinkId") is None:
        raise OptionError(
            "MISSING_OPTION",
            "'idempotentKey' needs 'sinkId': the name under which the brokers keep what is "
            "written, also for a query that lost its checkpoint",
        )
    if given.text("batchId") is not None:
        raise OptionError(
            "BAD_OPTION",
            "'batchId' and 'idempotentKey' both say what was written before: leave one of them out",
        )
    connection: ConnectionOptions | None = sink
    if servers is not None and servers.strip().lower() == "none":
        connection = None
    elif servers is not None:
        connection = replace(sink, bootstrap_servers=parse_servers("originServers", servers))
    return OriginOptions(columns=columns, connection=connection)
