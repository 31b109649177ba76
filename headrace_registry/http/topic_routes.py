"""The route /typed-topics, which is ours: what became of the schemas of typed topics."""

from headrace_registry.http.calls import RegistryCall
from headrace_registry.http.routing import Answer, Routes, page
from headrace_registry.typed_topics.subject_names import subject_of
from storage_engine.core.schemas.registry.records import Json

ROUTES = Routes()


@ROUTES.add("GET", "/typed-topics")
def typed_topics(call: RegistryCall) -> Answer:
    """Each typed topic whose subject the user may see, with the problem that keeps its schema from
    being registered, or null."""
    topics = call.service.topics
    typed, problems = topics.typed, topics.problems
    seen = set(call.sees([subject_of(each) for each in sorted(typed)]))
    rows: list[Json] = [
        {
            "topic": each,
            "subject": subject_of(each),
            "schemaVersion": typed[each].latest.version,
            "problem": problems.get(each),
        }
        for each in sorted(typed)
        if subject_of(each) in seen
    ]
    return list(page(rows, call.params))
