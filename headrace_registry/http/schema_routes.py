"""The routes under /schemas, /contexts and /compatibility."""

import contextlib
from collections.abc import Sequence
from functools import cache

from headrace_registry.http.calls import RegistryCall
from headrace_registry.http.documents import schema_document, version_document
from headrace_registry.http.routing import Answer, Routes, page
from storage_engine.core.schemas.languages import InvalidSchemaError, Schema, SchemaType, parse
from storage_engine.core.schemas.registry.changes import LATEST
from storage_engine.core.schemas.registry.compatibility import compared_with
from storage_engine.core.schemas.registry.records import Json, Level, StoredSchema
from storage_engine.core.schemas.registry.registry_error import (
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from storage_engine.core.schemas.registry.state import RegistryState
from storage_engine.schema_tools.protoc import compile_proto

ROUTES = Routes()
_ANY_CONTEXT = ":*:"


_SMALLEST = {
    SchemaType.AVRO: '"int"',
    SchemaType.JSON: "{}",
    SchemaType.PROTOBUF: 'syntax = "proto3";',
}


@cache
def _served_types() -> list[str]:
    """The languages whose packages are installed."""
    found = []
    for schema_type, text in _SMALLEST.items():
        with contextlib.suppress(InvalidSchemaError):
            parse(Schema(schema_type, text), {}, compile_proto=compile_proto)
            found.append(schema_type.value)
    return found


@ROUTES.add("GET", "/schemas/types")
def types(call: RegistryCall) -> Answer:
    return [*_served_types()]


@ROUTES.add("GET", "/contexts")
def contexts(call: RegistryCall) -> Answer:
    return ["."]


@ROUTES.add("GET", "/schemas")
def schemas(call: RegistryCall) -> Answer:
    params = call.params
    prefix = params.text("subjectPrefix", _ANY_CONTEXT).removeprefix(_ANY_CONTEXT)
    prefix = prefix.removeprefix(":.:")
    found = call.service.look(
        lambda state: [each for each in state.all_versions() if each.subject.startswith(prefix)]
    )
    if not params.flag("deleted"):
        found = [each for each in found if not each.is_deleted]
    if params.flag("latestOnly"):
        found = list({each.subject: each for each in found}.values())
    seen = call.viewer.seen({each.subject for each in found})
    rows = [each for each in found if each.subject in seen]
    return [version_document(each, shows_deleted=True) for each in page(rows, params)]


def _visible(call: RegistryCall) -> list[StoredSchema]:
    """The versions with the id, as far as they are seen; 40403 without one."""
    found = call.service.look(lambda state: state.with_id(call.schema_id))
    seen = call.viewer.seen({each.subject for each in found})
    found = [each for each in found if each.subject in seen]
    if not found:
        raise schema_not_found(call.schema_id)
    return found


@ROUTES.add("GET", "/schemas/ids/{id}")
def by_id(call: RegistryCall) -> Answer:
    document = schema_document(call.formatted(_visible(call)[0]))
    if call.params.flag("fetchMaxId"):
        document["maxId"] = call.service.look(lambda state: state.highest_id)
    return document


@ROUTES.add("GET", "/schemas/ids/{id}/schema")
def text_by_id(call: RegistryCall) -> Answer:
    return call.formatted(_visible(call)[0]).schema.text.encode()


def _places(call: RegistryCall) -> Sequence[StoredSchema]:
    found = _visible(call)
    subject = call.params.text("subject")
    if subject:
        found = [each for each in found if each.subject == subject]
    if not call.params.flag("deleted"):
        found = [each for each in found if not each.is_deleted]
    return page(found, call.params)


@ROUTES.add("GET", "/schemas/ids/{id}/subjects")
def subjects_of_id(call: RegistryCall) -> Answer:
    return list(dict.fromkeys(each.subject for each in _places(call)))


@ROUTES.add("GET", "/schemas/ids/{id}/versions")
def versions_of_id(call: RegistryCall) -> Answer:
    return [{"subject": each.subject, "version": each.version} for each in _places(call)]


@ROUTES.add("POST", "/compatibility/subjects/{subject}/versions")
def compatible_with_all(call: RegistryCall) -> Answer:
    """With the versions that the subject's level wants."""
    call.check_sees(call.subject)
    candidate = call.service.schemas.candidate(
        call.subject, call.given_schema(), normalize=call.params.flag("normalize")
    )
    return _verdict(call, call.service.schemas.reasons(candidate))


@ROUTES.add("POST", "/compatibility/subjects/{subject}/versions/{version}")
def compatible_with_one(call: RegistryCall) -> Answer:
    """With one version, in the direction of the subject's level."""
    call.check_sees(call.subject)
    version = call.version
    candidate = call.service.schemas.candidate(
        call.subject, call.given_schema(), normalize=call.params.flag("normalize")
    )

    def choose(state: RegistryState, level: Level) -> Sequence[StoredSchema]:
        versions = state.versions(call.subject)
        if not versions:
            raise subject_not_found(call.subject)
        chosen = [each for each in versions if each.version == version]
        if version == LATEST:
            chosen = versions[-1:]
        if not chosen:
            raise version_not_found(version)
        return compared_with(level, chosen, None, None)

    return _verdict(call, call.service.schemas.reasons(candidate, choose))


def _verdict(call: RegistryCall, reasons: list[str]) -> Answer:
    document: dict[str, Json] = {"is_compatible": not reasons}
    if call.params.flag("verbose"):
        document["messages"] = list(reasons)
    return document
