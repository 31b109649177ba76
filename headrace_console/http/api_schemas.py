"""Routes of the schema registry's subjects. Source: R-PAGE6."""

from headrace_console.http.api_cluster import now_ms
from headrace_console.http.routes import Call, RouteTable
from headrace_console.screens import schemas
from storage_engine.tools.document import Document

ROUTES = RouteTable()


@ROUTES.add("GET", "/subjects")
def get_subjects(call: Call) -> Document:
    deleted = call.params.flag("deleted")
    return call.registry.ask(
        lambda http: schemas.subject_list(http, call.page(), now_ms(), deleted=deleted)
    )


@ROUTES.add("GET", "/subjects/{subject:path}/versions/{version:int}")
def get_version(call: Call) -> Document:
    name, version = call.name("subject"), int(call.path["version"])
    return call.registry.ask(lambda http: schemas.version_document(http, name, version, now_ms()))


@ROUTES.add("GET", "/subjects/{subject:path}/versions")
def get_versions(call: Call) -> Document:
    name = call.name("subject")
    return call.registry.ask(lambda http: schemas.version_list(http, name, call.page(), now_ms()))


@ROUTES.add("GET", "/subjects/{subject:path}")
def get_subject(call: Call) -> Document:
    name = call.name("subject")
    topics = call.watcher.snapshot().metadata.topics
    return call.registry.ask(lambda http: schemas.subject_document(http, name, topics, now_ms()))


@ROUTES.add("GET", "/topics/{topic}/subjects")
def get_topic_subjects(call: Call) -> Document:
    topic = call.path["topic"]
    return call.registry.ask(lambda http: schemas.topic_subjects(http, topic, now_ms()))
