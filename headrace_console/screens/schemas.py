"""Subjects of the schema registry, their versions, and what these refer to.

A list asks the registry for the names of all subjects, and for more only of those that it shows.
What is not answered in time is missing, and said to be.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from headrace_console.paging import Page
from headrace_console.problem import ConsoleError
from storage_engine.client.schema_registry_http import (
    JsonAnswer,
    RegistryHttp,
    SchemaRegistryError,
    quoted_path,
)
from storage_engine.core.printable import printable
from storage_engine.tools.document import Document, Json

ROWS_S = 5.0
"""How long the rows of a list are asked for."""
MOST_REFERENCES = 200
"""The most that are shown of what a version refers to, of what refers to it, and of its places."""
MOST_REFERRERS = 20
"""The most ids of schemas that refer to a version whose places are asked for."""
MOST_NUMBERS = 500
"""The most versions to choose from."""
_AVRO = "AVRO"
_PARTS = ("key", "value")
_UNKNOWN: Document = {"value": None, "own": None}


def subject_list(http: RegistryHttp, page: Page, now_ms: int, *, deleted: bool) -> Document:
    """Return a page of the subjects that the user may see; `deleted`: also those of which each
    version is deleted softly."""
    live = set(_names(http, "/subjects"))
    every = set(_names(http, "/subjects?deleted=true")) | live if deleted else live
    everywhere = {name: _setting(http, name, None) for name in ("config", "mode")}
    paged = page.of(every, name=str, keys={"subject": str}, default="subject")
    until_s = time.monotonic() + ROWS_S
    late: list[str] = []

    def row(subject: str) -> Document:
        document: Document = {
            "subject": subject,
            "deleted": subject not in live,
            "topic": topic_of(subject),
            **dict.fromkeys(("versions", "latest", "id", "type")),
            "level": _UNKNOWN,
            "mode": _UNKNOWN,
        }
        if time.monotonic() > until_s:
            late.append(subject)
            return document
        try:
            return document | _subject_facts(http, subject, everywhere, deleted=subject not in live)
        except SchemaRegistryError as error:
            if error.status != 404:
                raise
            # Deleted since the names were read.
            return document

    rows = [row(each) for each in paged.rows]
    unanswered: list[Document] = []
    if late:
        why = f"the schema registry is slow: {len(late)} of these rows lack versions and rules"
        unanswered.append({"broker": None, "what": "the schema registry", "why": why})
    return {
        **paged.document(lambda name: name, as_of_ms=now_ms, unanswered=unanswered),
        "rows": rows,
    }


def _subject_facts(
    http: RegistryHttp, subject: str, everywhere: Mapping[str, Document], *, deleted: bool
) -> Document:
    query = "?deleted=true" if deleted else ""
    versions = _numbers(http, f"{_subject(subject)}/versions{query}")
    latest = max(versions)
    found = _object(http, f"{_subject(subject)}/versions/{latest}{query}")
    return {
        "versions": len(versions),
        "latest": latest,
        "id": _number(found, "id"),
        "type": found.get("schemaType") or _AVRO,
        "level": _setting(http, "config", subject, everywhere["config"]),
        "mode": _setting(http, "mode", subject, everywhere["mode"]),
    }


def subject_document(
    http: RegistryHttp, subject: str, topics: Collection[str], now_ms: int
) -> Document:
    """Return a subject. ConsoleError not_found where the user may see none of this name. `topics`:
    those that the user may see."""
    live = _live_versions(http, subject)
    versions = live or _versions(http, subject, deleted=True)
    if not versions:
        raise _no_subject(subject)
    everywhere = {name: _setting(http, name, None) for name in ("config", "mode")}
    topic = topic_of(subject)
    return {
        "as_of_ms": now_ms,
        "unanswered": [],
        "subject": subject,
        "topic": topic,
        "topic_is_there": topic is not None and topic in topics,
        "part": None if topic is None else subject.removeprefix(f"{topic}-"),
        **_subject_facts(http, subject, everywhere, deleted=not live),
        "deleted": not live,
        "numbers": versions[::-1][:MOST_NUMBERS],
    }


def version_list(http: RegistryHttp, subject: str, page: Page, now_ms: int) -> Document:
    """Return a page of a subject's versions, also of those that are deleted softly."""
    live = set(_live_versions(http, subject))
    every = live.union(_versions(http, subject, deleted=True))
    if not every:
        raise _no_subject(subject)
    paged = page.of(every, name=str, keys={"version": int}, default="-version")
    until_s = time.monotonic() + ROWS_S

    def row(version: int) -> Document:
        found: Mapping[str, JsonAnswer] = {}
        if time.monotonic() < until_s:
            found = _version(http, subject, version)
        return {
            "version": version,
            "deleted": version not in live,
            "id": found.get("id"),
            "type": found.get("schemaType") or (_AVRO if found else None),
            "characters": len(str(found["schema"])) if "schema" in found else None,
            "references": len(_rows(found.get("references") or [])) if found else None,
        }

    return paged.document(row, as_of_ms=now_ms)


def version_document(http: RegistryHttp, subject: str, version: int, now_ms: int) -> Document:
    """Return a version with its text, what it refers to, what refers to it, and where else its
    schema is registered."""
    found = _version(http, subject, version)
    schema_id = _number(found, "id")
    references = [
        {
            "name": each.get("name"),
            "subject": each.get("subject"),
            "version": each.get("version"),
        }
        for each in _rows(found.get("references") or [])
    ]
    place = f"{_subject(subject)}/versions/{version}"
    referrers = _numbers(http, f"{place}/referencedby?deleted=true", none_where_missing=True)
    shown = referrers[:MOST_REFERRERS]
    places = [each for other in shown for each in _places(http, other)]
    others = [
        each
        for each in _places(http, schema_id)
        if each != {"subject": subject, "version": version}
    ]
    return {
        "as_of_ms": now_ms,
        "subject": subject,
        "version": version,
        "id": schema_id,
        "type": found.get("schemaType") or _AVRO,
        "text": str(found.get("schema", "")),
        "references": references[:MOST_REFERENCES],
        "referenced_by": places[:MOST_REFERENCES],
        "referenced_by_cut": len(referrers) - len(shown),
        "others": others[:MOST_REFERENCES],
    }


def topic_subjects(http: RegistryHttp, topic: str, now_ms: int) -> Document:
    """Return the latest version of each subject of a topic that is there."""
    rows: list[Json] = []
    for part in _PARTS:
        try:
            found = _object(http, f"{_subject(f'{topic}-{part}')}/versions/latest")
        except SchemaRegistryError as error:
            if error.status != 404:
                raise
            continue
        rows.append(
            {
                "part": part,
                "subject": f"{topic}-{part}",
                "version": _number(found, "version"),
                "id": _number(found, "id"),
                "type": found.get("schemaType") or _AVRO,
            }
        )
    return {"as_of_ms": now_ms, "rows": rows}


def topic_of(subject: str) -> str | None:
    """Return the topic whose keys or values a subject is for by its name; None for others."""
    for part in _PARTS:
        topic = subject.removesuffix(f"-{part}")
        if topic and topic != subject:
            return topic
    return None


def _setting(
    http: RegistryHttp, name: str, subject: str | None, everywhere: Document | None = None
) -> Document:
    """Return the level or mode of a subject, and whether it is its own; that of the whole registry
    without a subject."""
    path = f"/{name}" if subject is None else f"/{name}{quoted_path(subject)}"
    try:
        found = _object(http, path)
    except SchemaRegistryError as error:
        if error.status != 404 or everywhere is None:
            raise
        return everywhere
    value = found.get("mode") if name == "mode" else found.get("compatibilityLevel")
    return {"value": None if value is None else str(value), "own": subject is not None}


# --- answers of the registry


def _subject(subject: str) -> str:
    return f"/subjects{quoted_path(subject)}"


def _no_subject(subject: str) -> ConsoleError:
    name = printable(subject[:200])
    return ConsoleError("not_found", f"there is no subject '{name}' that you may see")


def _live_versions(http: RegistryHttp, subject: str) -> list[int]:
    return _versions(http, subject, deleted=False)


def _versions(http: RegistryHttp, subject: str, *, deleted: bool) -> list[int]:
    """Return the numbers; none where the subject is not there."""
    query = "?deleted=true" if deleted else ""
    return _numbers(http, f"{_subject(subject)}/versions{query}", none_where_missing=True)


def _version(http: RegistryHttp, subject: str, version: int) -> Mapping[str, JsonAnswer]:
    return _object(http, f"{_subject(subject)}/versions/{version}?deleted=true")


def _places(http: RegistryHttp, schema_id: int) -> list[Document]:
    found = _asked(http, f"/schemas/ids/{schema_id}/versions", none_where_missing=True)
    return [
        {"subject": each.get("subject"), "version": each.get("version")} for each in _rows(found)
    ]


def _asked(http: RegistryHttp, path: str, *, none_where_missing: bool = False) -> JsonAnswer:
    try:
        return http.ask_every_instance(path)
    except SchemaRegistryError as error:
        if none_where_missing and error.status == 404:
            return []
        raise


def _object(http: RegistryHttp, path: str) -> Mapping[str, JsonAnswer]:
    found = _asked(http, path)
    if not isinstance(found, dict):
        raise _no_registry(path)
    return found


def _rows(found: JsonAnswer) -> list[dict[str, JsonAnswer]]:
    if not isinstance(found, list):
        raise _no_registry("a list")
    rows = [each for each in found if isinstance(each, dict)]
    if len(rows) != len(found):
        raise _no_registry("a list")
    return rows


def _list(
    found: JsonAnswer, path: str, is_one: Callable[[JsonAnswer], bool]
) -> Sequence[JsonAnswer]:
    if not isinstance(found, list) or not all(is_one(each) for each in found):
        raise _no_registry(path)
    return found


def _names(http: RegistryHttp, path: str) -> list[str]:
    found = _list(_asked(http, path), path, lambda each: isinstance(each, str))
    return [str(each) for each in found]


def _numbers(http: RegistryHttp, path: str, *, none_where_missing: bool = False) -> list[int]:
    found = _asked(http, path, none_where_missing=none_where_missing)
    numbers = [each for each in _list(found, path, lambda each: True) if isinstance(each, int)]
    return sorted(numbers)


def _number(found: Mapping[str, JsonAnswer], name: str) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _no_registry(name)
    return value


def _no_registry(what: str) -> ConsoleError:
    return ConsoleError(
        "cluster",
        f"the answer to {what} is not what it should be: what answers is no schema registry; "
        "correct --registry",
    )
