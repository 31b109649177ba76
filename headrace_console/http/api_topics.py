"""Routes of topics, and of the transactions that hold up their readers."""

from headrace_console.cluster.snapshot import Snapshot
from headrace_console.http.api_cluster import now_ms, visible_queries
from headrace_console.http.routes import Call, RouteTable
from headrace_console.records.producing import produce_one
from headrace_console.screens import topics
from headrace_console.screens.waiting import waiting_list
from storage_engine.tools.document import Document

ROUTES = RouteTable()


@ROUTES.add("GET", "/topics")
def get_topics(call: Call) -> Document:
    snapshot = call.watcher.snapshot()
    return topics.topic_list(snapshot, call.page(), internal=call.params.flag("internal"))


@ROUTES.add("POST", "/topics")
def post_topic(call: Call) -> tuple[int, Document]:
    name = call.upstream.call(lambda cluster: topics.create(cluster, call.body))
    return 201, _after_change(call, name)


@ROUTES.add("GET", "/topics/{topic}")
def get_topic(call: Call) -> Document:
    return _document(call, call.path["topic"], call.watcher.snapshot())


def _newer(call: Call) -> Snapshot:
    """Look at the cluster now, and return the new snapshot."""
    asked_ms = now_ms()
    call.watcher.look_soon()
    return call.watcher.snapshot(newer_than_ms=asked_ms)


def _document(call: Call, name: str, snapshot: Snapshot) -> Document:
    if name not in snapshot.metadata.topics:
        # The topic may be newer than the snapshot.
        call.watcher.look_soon()
        snapshot = call.watcher.snapshot(newer_than_ms=now_ms() - 50)
    told = {query.dead_letter_topic for query in visible_queries(call, snapshot)}
    return call.upstream.call(
        lambda cluster: topics.topic_document(snapshot, cluster, name, dead_letters=name in told)
    )


def _after_change(call: Call, name: str) -> Document:
    """Return the topic as it is after the change."""
    return _document(call, name, _newer(call))


@ROUTES.add("PATCH", "/topics/{topic}")
def patch_topic(call: Call) -> Document:
    name = call.path["topic"]
    call.upstream.call(lambda cluster: topics.alter(cluster, name, call.body))
    return _after_change(call, name)


@ROUTES.add("DELETE", "/topics/{topic}")
def delete_topic(call: Call) -> Document:
    name = call.path["topic"]
    call.upstream.call(lambda cluster: topics.delete(cluster, name, call.body))
    _newer(call)
    return {"deleted": name}


@ROUTES.add("GET", "/topics/{topic}/partitions")
def get_partitions(call: Call) -> Document:
    return topics.partition_list(call.watcher.snapshot(), call.path["topic"], call.page())


@ROUTES.add("POST", "/topics/{topic}/records")
def post_record(call: Call) -> tuple[int, Document]:
    name = call.path["topic"]
    return 201, call.upstream.call(lambda cluster: produce_one(cluster, name, call.body))


@ROUTES.add("GET", "/topics/{topic}/waiting")
def get_topic_waiting(call: Call) -> Document:
    snapshot = call.watcher.snapshot()
    return waiting_list(snapshot, call.page(), now_ms(), topic=call.path["topic"])


@ROUTES.add("GET", "/waiting")
def get_waiting(call: Call) -> Document:
    snapshot = call.watcher.snapshot()
    return waiting_list(snapshot, call.page(), now_ms(), topic=call.params.text("topic"))
