"""Routes of the first screen, brokers, the timeline and access."""

import time

from headrace_console.cluster.snapshot import Snapshot
from headrace_console.http.routes import Call, RouteTable
from headrace_console.problem import ConsoleError
from headrace_console.queries.query_store import SparkQuery
from headrace_console.screens import access
from headrace_console.screens.overview import overview
from headrace_console.screens.problems import find_problems
from headrace_console.screens.timeline import TimelineFilter, timeline
from headrace_console.screens.topics import setting_list
from storage_engine.client.admin.topics import describe_broker_configs
from storage_engine.tools.document import Document

ROUTES = RouteTable()


def now_ms() -> int:
    return int(time.time() * 1000)


def visible_queries(call: Call, snapshot: Snapshot | None) -> list[SparkQuery]:
    """Return the queries that this user may see: the cluster shows them all topics of the query. On
    a secured cluster nobody sees a query without topics."""
    queries = call.state.queries.all()
    if call.state.settings.mechanism is None:
        return queries
    known = set() if snapshot is None else snapshot.metadata.topics.keys()
    return [query for query in queries if query.topics and set(query.topics) <= known]


@ROUTES.add("GET", "/overview")
def get_overview(call: Call) -> Document:
    snapshot = call.watcher.snapshot()
    at_ms = now_ms()
    found = find_problems(
        snapshot, visible_queries(call, snapshot), call.state.settings.thresholds, now_ms=at_ms
    )
    problems = call.principal.problems.dated(found, at_ms)
    newest_first = call.watcher.changes.events()[::-1]
    return {
        **overview(snapshot, call.watcher.traffic.points, problems, newest_first),
        "cluster": {
            "name": call.state.settings.shown_name,
            "cluster_id": snapshot.metadata.cluster_id,
            "kind": call.watcher.kind,
        },
    }


@ROUTES.add("GET", "/brokers/{broker:int}/settings")
def get_broker_settings(call: Call) -> Document:
    broker = int(call.path["broker"])
    if broker not in call.watcher.snapshot().metadata.brokers:
        raise ConsoleError("not_found", f"broker {broker} is not in the cluster now")
    entries = call.upstream.call(lambda cluster: describe_broker_configs(cluster, broker))
    return setting_list(entries, call.page(), now_ms())


@ROUTES.add("GET", "/timeline")
def get_timeline(call: Call) -> Document:
    params = call.params
    limit = params.integer("limit", 200, least=1, most=1_000)
    assert limit is not None
    wanted = TimelineFilter(
        since_ms=params.integer("since_ms", None),
        until_ms=params.integer("until_ms", None),
        topic=params.text("topic"),
        partition=params.integer("partition", None),
        broker=params.integer("broker", None),
        limit=limit,
    )
    changes = call.watcher.changes
    snapshot = call.watcher.snapshot()
    logged = call.state.logged_events()
    return timeline(changes.events(), logged, snapshot, wanted, changes.since_ms)


def _secured(call: Call) -> None:
    if call.state.settings.mechanism is None:
        raise ConsoleError(
            "not_here",
            "this cluster has no log-ins, so it has no users and no access rules; "
            "docs/security.md describes how to secure a cluster",
        )


@ROUTES.add("GET", "/access/users")
def get_users(call: Call) -> Document:
    _secured(call)
    return call.upstream.call(lambda cluster: access.user_list(cluster, call.page(), now_ms()))


@ROUTES.add("GET", "/access/acls")
def get_rules(call: Call) -> Document:
    _secured(call)
    return call.upstream.call(lambda cluster: access.rule_list(cluster, call.page(), now_ms()))


@ROUTES.add("GET", "/access/quotas")
def get_quotas(call: Call) -> Document:
    return call.upstream.call(lambda cluster: access.quota_list(cluster, call.page(), now_ms()))
