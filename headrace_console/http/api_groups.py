"""Routes of groups and of dead letters, with previews of their changes."""

from headrace_console.http.api_cluster import now_ms, visible_queries
from headrace_console.http.routes import Call, RouteTable
from headrace_console.http.sessions import remember
from headrace_console.paging import itself
from headrace_console.problem import ConsoleError
from headrace_console.screens import groups
from headrace_console.screens.groups import PREVIEW_S, ResetPreview
from headrace_console.screens.replay_runs import PREVIEW_S as LETTER_PREVIEW_S
from headrace_console.screens.replay_runs import LetterPreview, ReplayRun, letter_topics, preview
from headrace_console.screens.topics import known_topic
from storage_engine.tools.document import Document

ROUTES = RouteTable()


@ROUTES.add("GET", "/groups")
def get_groups(call: Call) -> Document:
    snapshot = call.watcher.snapshot()
    return call.upstream.ask_brokers(lambda lines: groups.group_list(lines, snapshot, call.page()))


@ROUTES.add("GET", "/groups/{group:path}")
def get_group(call: Call) -> Document:
    return call.upstream.call(lambda cluster: groups.group_document(cluster, call.name("group")))


@ROUTES.add("DELETE", "/groups/{group:path}")
def delete_group(call: Call) -> Document:
    group = call.name("group")
    call.upstream.call(lambda cluster: groups.delete(cluster, group, call.body))
    return {"deleted": group}


@ROUTES.add("POST", "/groups/{group:path}/reset/preview")
def post_preview(call: Call) -> Document:
    shown = call.upstream.call(
        lambda cluster: groups.preview_reset(cluster, call.name("group"), call.body)
    )
    return {
        "preview_id": remember(call.own_session(), "reset", shown),
        "expires_ms": now_ms() + PREVIEW_S * 1000,
        "rows": shown.rows,
    }


@ROUTES.add("POST", "/groups/{group:path}/reset/apply")
def post_apply(call: Call) -> Document:
    group = call.name("group")
    call.body.confirm(group)
    shown = _remembered(call)
    if not isinstance(shown, ResetPreview) or shown.group != group:
        raise _no_preview()
    return {"rows": call.upstream.call(lambda cluster: groups.apply_reset(cluster, shown))}


def _remembered(call: Call) -> object:
    """Return the preview and forget it: it is used once."""
    return call.own_session().memory.pop(call.body.text("preview_id"), None)


def _no_preview() -> ConsoleError:
    return ConsoleError("conflict", "the preview does not exist any more; open a new one")


@ROUTES.add("GET", "/dead-letters")
def get_letters(call: Call) -> Document:
    snapshot = call.watcher.snapshot()
    told = [each.dead_letter_topic for each in visible_queries(call, snapshot)]
    rows = call.upstream.call(
        lambda cluster: letter_topics(cluster, snapshot, [name for name in told if name])
    )
    paged = call.page().of(
        rows,
        name=lambda row: str(row["topic"]),
        keys={"topic": lambda row: row["topic"]},
        default="topic",
    )
    return paged.document(itself, as_of_ms=snapshot.at_ms)


@ROUTES.add("POST", "/dead-letters/{topic}/preview")
def post_letters_preview(call: Call) -> Document:
    shown = call.upstream.call(lambda cluster: preview(cluster, call.path["topic"], call.body))
    return {
        "preview_id": remember(call.own_session(), "letters", shown),
        "expires_ms": now_ms() + LETTER_PREVIEW_S * 1000,
        **shown.document,
    }


@ROUTES.add("POST", "/dead-letters/{topic}/replay")
def post_replay(call: Call) -> tuple[int, Document]:
    topic = call.path["topic"]
    call.body.confirm(topic)
    shown = _remembered(call)
    if not isinstance(shown, LetterPreview) or shown.topic != topic:
        raise _no_preview()
    session, sessions = call.own_session(), call.state.sessions
    run = call.state.replays.begin(
        call.upstream, shown, is_alive=lambda: sessions.is_alive(session)
    )
    return 202, {"replay_id": run.replay_id}


@ROUTES.add("GET", "/dead-letters/{topic}/replays")
def get_replays(call: Call) -> Document:
    topic = call.path["topic"]
    known_topic(call.watcher.snapshot(), topic)
    return {"rows": [each.document for each in call.state.replays.of_topic(topic)]}


def _replay(call: Call) -> ReplayRun:
    """Return a replay whose topic this user may see; else ConsoleError not_found."""
    run = call.state.replays.get(call.path["id"])
    if run is None or run.topic not in call.watcher.snapshot().metadata.topics:
        raise ConsoleError("not_found", "no replay has this id")
    return run


@ROUTES.add("GET", "/replays/{id}")
def get_replay(call: Call) -> Document:
    return _replay(call).document


@ROUTES.add("DELETE", "/replays/{id}")
def delete_replay(call: Call) -> Document:
    run = _replay(call)
    call.state.replays.stop(run, call.upstream.user)
    return run.document
