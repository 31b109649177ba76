"""Says that a topic whose log has lost its beginning has a table, to a query that reads it from
"earliest" and names none: an empty beginning looks like a whole one."""

import contextlib
from collections.abc import Mapping

from connector.connections import cluster_for
from connector.log_once import warn_once
from connector.options.offset_specs import EARLIEST, Everywhere, OffsetSpec
from connector.options.source_options import SourceOptions
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition

MOST_TOPICS = 10
"""The most whose settings are asked for."""

_FORMAT = "headrace.table.format"


def tell_of_tables(
    options: SourceOptions, spec: OffsetSpec, starts: Mapping[TopicPartition, int]
) -> None:
    """`starts`: the resolved offsets at which the query begins."""
    from_earliest = isinstance(spec, Everywhere) and spec.special == EARLIEST
    if not (from_earliest and options.tells_of_tables):
        return
    cut = {each.topic: each for each, start in sorted(starts.items()) if start > 0}
    for topic in list(cut)[:MOST_TOPICS]:
        # A query needs no right to see a topic's settings.
        with contextlib.suppress(HeadraceError):
            if _has_table(options, topic):
                warn_once(
                    [
                        f"the log of {cut[topic]} begins at offset {starts[cut[topic]]}, and topic "
                        f"'{topic}' has a table with what came before: name it with the option "
                        "'table', or set table=none"
                    ]
                )


def _has_table(options: SourceOptions, topic: str) -> bool:
    from storage_engine.client.admin.topics import describe_topic_configs

    entry = describe_topic_configs(cluster_for(options.connection), topic).get(_FORMAT)
    return entry is not None and bool(entry.value)
