"""Which queries a user may see: those all of whose topics the cluster shows to them."""

from collections.abc import Iterable

from headrace_console.cluster.snapshot import Snapshot
from headrace_console.queries.query_store import SparkQuery


def visible(
    queries: Iterable[SparkQuery], snapshot: Snapshot | None, *, is_secured: bool
) -> list[SparkQuery]:
    """A query that names no topic is nobody's business where users differ."""
    if not is_secured:
        return list(queries)
    known = set() if snapshot is None else snapshot.metadata.topics.keys()
    return [query for query in queries if query.topics and set(query.topics) <= known]
