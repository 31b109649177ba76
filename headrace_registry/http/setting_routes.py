"""The routes under /config and /mode."""

from collections.abc import Callable

from headrace_registry.access.rights import Doing
from headrace_registry.http.calls import RegistryCall
from headrace_registry.http.routing import Answer, Handler, Routes
from headrace_registry.http.subject_routes import subject_in
from storage_engine.core.schemas.registry.changes import (
    delete_config,
    delete_mode,
    set_config,
    set_mode,
)
from storage_engine.core.schemas.registry.records import Json, Level, Mode
from storage_engine.core.schemas.registry.registry_error import (
    RegistryError,
    invalid_level,
    invalid_mode,
    no_own_level,
    no_own_mode,
)

ROUTES = Routes()


def _both(method: str, path: str) -> Callable[[Handler], Handler]:
    """Declare a route of the whole registry, and of a subject."""

    def declare(handler: Handler) -> Handler:
        ROUTES.add(method, path)(handler)
        return ROUTES.add(method, f"{path}/{{subject}}")(handler)

    return declare


def _seen_subject(call: RegistryCall) -> tuple[str | None, bool]:
    """The subject, and whether the user may see it."""
    subject = subject_in(call)
    return subject, subject is None or subject in call.viewer.seen([subject])


@_both("GET", "/config")
def config(call: RegistryCall) -> Answer:
    subject, is_seen = _seen_subject(call)
    own = call.service.look(lambda state: state.own_config(subject)) if is_seen else None
    defaults = call.params.flag("defaultToGlobal") or subject is None
    if own is None and not defaults:
        raise no_own_level(subject or "")
    level = call.service.look(lambda state: state.level(subject if is_seen else None))
    fields = {} if own is None else dict(own.fields)
    fields.pop("subject", None)
    return {**fields, "compatibilityLevel": level.value}


_KEPT_FIELDS = ("normalize", "compatibilityGroup")


@_both("PUT", "/config")
def put_config(call: RegistryCall) -> Answer:
    subject = subject_in(call)
    call.check_may(Doing.SET, subject)
    call.only("compatibility", *_KEPT_FIELDS)
    given: dict[str, Json] = {}
    level = call.body.get("compatibility")
    if level is not None:
        if not isinstance(level, str) or level.upper() not in Level.__members__:
            raise invalid_level()
        given["compatibilityLevel"] = level.upper()
    normalize, group = (call.body.get(name) for name in _KEPT_FIELDS)
    if normalize is not None and not isinstance(normalize, bool):
        raise RegistryError(422, "normalize is neither true nor false")
    if group is not None and not isinstance(group, str):
        raise RegistryError(422, "compatibilityGroup is no text")
    given |= {name: call.body[name] for name in _KEPT_FIELDS if call.body.get(name) is not None}
    if not given:
        raise invalid_level()
    answer: dict[str, Json] = {**given}
    if "compatibilityLevel" in answer:
        answer["compatibility"] = answer.pop("compatibilityLevel")
    done = call.service.change(call.raw, lambda state: set_config(state, subject, given))
    return answer if done is None else done


@_both("DELETE", "/config")
def remove_config(call: RegistryCall) -> Answer:
    subject = subject_in(call)
    if subject is not None:
        call.check_sees(subject)
    call.check_may(Doing.SET, subject)
    done = call.service.change(call.raw, lambda state: delete_config(state, subject))
    return {"compatibilityLevel": done} if isinstance(done, str) else done


@_both("GET", "/mode")
def mode(call: RegistryCall) -> Answer:
    subject, is_seen = _seen_subject(call)
    own = call.service.look(lambda state: state.own_mode(subject)) if is_seen else None
    if own is None and subject is not None and not call.params.flag("defaultToGlobal"):
        raise no_own_mode(subject)
    found = call.service.look(lambda state: state.mode(subject if is_seen else None))
    return {"mode": (own or found).value}


@_both("PUT", "/mode")
def put_mode(call: RegistryCall) -> Answer:
    subject = subject_in(call)
    call.check_may(Doing.SET, subject)
    call.only("mode")
    given = call.body.get("mode")
    if not isinstance(given, str) or given.upper() not in Mode.__members__:
        raise invalid_mode()
    wanted, force = Mode[given.upper()], call.params.flag("force")
    done = call.service.change(
        call.raw, lambda state: set_mode(state, subject, wanted, force=force)
    )
    return {"mode": done} if isinstance(done, str) else done


@_both("DELETE", "/mode")
def remove_mode(call: RegistryCall) -> Answer:
    subject = subject_in(call)
    if subject is not None:
        call.check_sees(subject)
    call.check_may(Doing.SET, subject)
    done = call.service.change(call.raw, lambda state: delete_mode(state, subject))
    return {"mode": done} if isinstance(done, str) else done
