"""Routes of messages and batches; the streamed search is in `streams`."""

from starlette.responses import Response

from headrace_console.given import MOST_LIMIT, Params, bad
from headrace_console.http.api_cluster import now_ms
from headrace_console.http.routes import Call, RouteTable
from headrace_console.problem import ConsoleError
from headrace_console.records.message_search import (
    ONE_ANSWER,
    MessageSearch,
    SearchRequest,
    collected,
)
from headrace_console.records.record_search import RecordSearch
from headrace_console.records.shown_batches import batches, one_message, raw_part
from headrace_console.screens.waiting import waiting_of
from storage_engine.client.cluster import ISOLATION_LEVELS, Cluster
from storage_engine.client.topic_schemas import TopicSchemas
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.document import Document

ROUTES = RouteTable()
MOST_PARTITIONS = 500


def search_request(topic: str, params: Params) -> SearchRequest:
    """Return the search that the parameters describe; ConsoleError bad_request for wrong ones."""
    limit = params.integer("limit", 50, least=1, most=MOST_LIMIT)
    isolation = params.text("isolation", "read_committed")
    if isolation not in ISOLATION_LEVELS:
        raise bad("parameter 'isolation' must be read_committed or read_uncommitted")
    partitions = params.integers("partition")
    if len(partitions) > MOST_PARTITIONS:
        raise bad(f"parameter 'partition' can be given {MOST_PARTITIONS} times at most")
    columns = params.text("columns")
    assert limit is not None and isolation is not None
    start = params.text("from", "newest")
    assert start is not None
    return SearchRequest(
        topic=topic,
        partitions=tuple(dict.fromkeys(partitions)),
        start=start,
        limit=limit,
        isolation=isolation,
        search=RecordSearch.parse(params, since_ms=params.integer("since", None)),
        columns=None if columns is None else tuple(each.strip() for each in columns.split(",")),
        where=params.text("where"),
    )


@ROUTES.add("GET", "/topics/{topic}/messages")
def get_messages(call: Call) -> Document:
    request = search_request(call.path["topic"], call.params)
    schemas = call.schemas(request.topic)

    def work(cluster: Cluster) -> Document:
        return collected(
            MessageSearch(cluster, request, ONE_ANSWER, is_left=call.is_left, schemas=schemas)
        )

    found = call.upstream.call(work)
    waiting = waiting_of(call.watcher.snapshot(), [request.topic], now_ms())
    return {"as_of_ms": now_ms(), **found, "waiting": waiting}


@ROUTES.add("GET", "/topics/{topic}/messages/{partition:int}/{offset:int}")
def get_message(call: Call) -> Document:
    tp = _place(call)

    def work(cluster: Cluster) -> Document:
        known = TopicSchemas(cluster).get(tp.topic)
        schema = None if known is None else known.schema
        return one_message(cluster, tp, int(call.path["offset"]), schema, call.schemas(tp.topic))

    return {"as_of_ms": now_ms(), **call.upstream.call(work)}


@ROUTES.add("GET", "/topics/{topic}/messages/{partition:int}/{offset:int}/raw")
def get_raw(call: Call) -> Response:
    tp, part = _place(call), call.params.text("part", "value")
    if part not in ("key", "value"):
        raise bad("parameter 'part' must be key or value")
    offset = int(call.path["offset"])
    data = call.upstream.call(lambda cluster: raw_part(cluster, tp, offset, part))
    name = f"{tp.topic}-{tp.partition}-{offset}-{part}.bin"
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{_file_name(name)}"'},
    )


def _file_name(name: str) -> str:
    return "".join(
        each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in name
    )


@ROUTES.add("GET", "/topics/{topic}/batches")
def get_batches(call: Call) -> Document:
    number = call.params.integer("partition", None, most=2**31 - 1)
    if number is None:
        raise bad("parameter 'partition' is missing")
    tp = TopicPartition(call.path["topic"], number)
    start = call.params.text("from", "newest")
    limit = call.params.integer("limit", 50, least=1, most=MOST_LIMIT)
    assert start is not None and limit is not None

    def work(cluster: Cluster) -> Document:
        if tp.partition not in cluster.topic(tp.topic).partitions:
            raise cluster.unknown(tp)
        is_typed = TopicSchemas(cluster).get(tp.topic) is not None
        return batches(cluster, tp, start, limit, topic_is_typed=is_typed)

    return call.upstream.call(work)


def _place(call: Call) -> TopicPartition:
    partition = int(call.path["partition"])
    if partition >= 2**31 or int(call.path["offset"]) >= 2**63:
        raise ConsoleError("not_found", "there is no such partition or offset")
    return TopicPartition(call.path["topic"], partition)
