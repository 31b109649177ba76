"""The Spark format `headrace`: batch and streaming, source and sink, Arrow record batches both
ways.

Of the storage engine it uses only the client, the wire protocol, the ids and the errors. Imports
are light, because Spark imports this package afresh in every planner and worker process.

An import before the session is built lets Spark start the Python that imports it, in which the
package is installed, unless another one was chosen (`workers_python`).

`from connector import …` offers what a pipeline needs beside the format:

    KeyedSink        foreachBatch: micro-batches into a database, each record once
    with_dead_letters, dead_letters
                     rejected records to a topic of their own, with reason and origin
    register         the format, where Spark does not find it by itself
    in_session       a function that writes from another thread
    LagListener, lag_of, OffsetsBehindLatest
                     how far a streaming query is behind the log, from its progress
    QueryMetrics     shows a console what streaming queries do
    ConnectorError   what the format and its helpers refuse; `code` is stable
"""

from typing import TYPE_CHECKING

from connector.database.keyed_sink import KeyedSink
from connector.dead_letters import dead_letters, with_dead_letters
from connector.errors import ConnectorError
from connector.registration import register
from connector.threads import in_session
from connector.workers_python import use_this_python

if TYPE_CHECKING:
    from connector.query_metrics import QueryMetrics
    from connector.source.lag import LagListener, OffsetsBehindLatest, lag_of

__all__ = [
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


def __getattr__(name: str) -> object:
    """Listeners are imported on first use, because they need pyspark.sql."""
    if name == "QueryMetrics":
        from connector import query_metrics

        return query_metrics.QueryMetrics
    if name not in ("LagListener", "OffsetsBehindLatest", "lag_of"):
        raise AttributeError(f"module 'connector' has no attribute '{name}'")
    from connector.source import lag

    return getattr(lag, name)


use_this_python()
