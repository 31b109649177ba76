"""The routes under /subjects."""

from headrace_registry.access.rights import Doing
from headrace_registry.http.calls import RegistryCall
from headrace_registry.http.documents import version_document
from headrace_registry.http.routing import Answer, Routes, page
from storage_engine.core.schemas.registry.changes import (
    LATEST,
    check_subject,
    delete_subject,
    delete_version,
)
from storage_engine.core.schemas.registry.records import Json, StoredSchema
from storage_engine.core.schemas.registry.registry_error import (
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from storage_engine.core.schemas.registry.state import RegistryState

ROUTES = Routes()


@ROUTES.add("GET", "/subjects")
def subjects(call: RegistryCall) -> Answer:
    params = call.params
    deleted_only = params.flag("deletedOnly")
    prefix = params.text("subjectPrefix").removeprefix(":*:").removeprefix(":.:")

    def names(state: RegistryState) -> list[str]:
        every = state.subjects(with_deleted=deleted_only or params.flag("deleted"))
        if deleted_only:
            live = set(state.subjects())
            every = [name for name in every if name not in live]
        return [name for name in every if name.startswith(prefix)]

    seen: list[Json] = list(page(call.sees(call.service.look(names)), params))
    return seen


@ROUTES.add("POST", "/subjects/{subject}")
def lookup(call: RegistryCall) -> Answer:
    """The version of the subject that is the schema in the body."""
    call.check_sees(call.subject)
    params = call.params
    with_deleted = params.flag("deleted")
    versions = call.service.look(
        lambda state: state.versions(call.subject, with_deleted=with_deleted)
    )
    if not versions:
        raise subject_not_found(call.subject)
    normalize = params.flag("normalize")
    candidate = call.service.schemas.candidate(
        call.subject, call.given_schema(), normalize=normalize
    )
    found = call.service.schemas.lookup(candidate, normalize=normalize, with_deleted=with_deleted)
    if found is None:
        raise schema_not_found()
    return version_document(call.formatted(found))


@ROUTES.add("DELETE", "/subjects/{subject}")
def remove(call: RegistryCall) -> Answer:
    call.check_sees(call.subject)
    call.check_may(Doing.DELETE, call.subject)
    permanent = call.params.flag("permanent")
    return call.service.change(
        call.raw, lambda state: delete_subject(state, call.subject, permanent=permanent)
    )


@ROUTES.add("GET", "/subjects/{subject}/versions")
def versions(call: RegistryCall) -> Answer:
    call.check_sees(call.subject)
    params = call.params
    deleted_only = params.flag("deletedOnly")
    with_deleted = deleted_only or params.flag("deleted")
    found = call.service.look(lambda state: state.versions(call.subject, with_deleted=with_deleted))
    if deleted_only:
        found = [each for each in found if each.is_deleted]
    if not found:
        raise subject_not_found(call.subject)
    return [each.version for each in page(found, params)]


@ROUTES.add("POST", "/subjects/{subject}/versions")
def register(call: RegistryCall) -> Answer:
    call.check_may(Doing.REGISTER, call.subject)
    given = call.given_schema()
    normalize = call.params.flag("normalize")

    def work() -> Json:
        found = call.service.schemas.register(call.subject, given, normalize=normalize)
        return {"id": found}

    return call.service.writes.do(call.raw, work)


def _stored(call: RegistryCall) -> StoredSchema:
    """The version in the path."""
    call.check_sees(call.subject)
    with_deleted = call.params.flag("deleted")
    version = call.version

    def find(state: RegistryState) -> StoredSchema | None:
        found = state.versions(call.subject, with_deleted=with_deleted)
        if not found:
            raise subject_not_found(call.subject)
        if version == LATEST:
            return found[-1]
        return next((each for each in found if each.version == version), None)

    stored = call.service.look(find)
    if stored is None:
        raise version_not_found(version)
    return stored


@ROUTES.add("GET", "/subjects/{subject}/versions/{version}")
def version(call: RegistryCall) -> Answer:
    return version_document(call.formatted(_stored(call)), shows_deleted=True)


@ROUTES.add("GET", "/subjects/{subject}/versions/{version}/schema")
def text(call: RegistryCall) -> Answer:
    return call.formatted(_stored(call)).schema.text.encode()


@ROUTES.add("GET", "/subjects/{subject}/versions/{version}/referencedby")
def referenced_by(call: RegistryCall) -> Answer:
    """The ids of the schemas that refer to the version."""
    stored = _stored(call)
    found = call.service.look(lambda state: state.referrers(stored.subject, stored.version))
    if not call.params.flag("deleted"):
        found = [each for each in found if not each.is_deleted]
    seen = call.viewer.seen({each.subject for each in found})
    ids = sorted({each.id for each in found if each.subject in seen})
    return list(page(ids, call.params))


@ROUTES.add("DELETE", "/subjects/{subject}/versions/{version}")
def remove_version(call: RegistryCall) -> Answer:
    call.check_sees(call.subject)
    call.check_may(Doing.DELETE, call.subject)
    permanent, number = call.params.flag("permanent"), call.version
    return call.service.change(
        call.raw,
        lambda state: delete_version(state, call.subject, number, permanent=permanent),
    )


def subject_in(call: RegistryCall) -> str | None:
    """The subject in the path; None without one, which is the whole registry."""
    given = call.path.get("subject")
    return None if given in (None, ":.:") else check_subject(given or "")
