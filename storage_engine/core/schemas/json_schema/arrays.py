"""Arrays: items that come and go at their places, and what holds for the rest.

Draft 2020-12 calls `prefixItems` and `items` what earlier ones call `items` and `additionalItems`.

Source: Confluent's documentation of the evolution of JSON Schemas.
"""

from storage_engine.core.schemas.json_schema.documents import Part
from storage_engine.core.schemas.json_schema.objects import Judge
from storage_engine.core.schemas.json_schema.shapes import ANYTHING, Anything, Nothing, Shape, Typed


def arrays(judge: Judge, reader: Typed, writer: Typed, path: str) -> list[str]:
    """Return why the reader's arrays are fewer than the writer's."""
    new, old = Items(reader), Items(writer)
    found: list[str] = []
    for place, (after, before) in enumerate(zip(new.places, old.places, strict=False)):
        found += judge.compare(after, before, f"{path}/items/{place}")
    for place in range(len(new.places), len(old.places)):
        found += _removed(judge, new.rest, old.places[place], f"{path}/items/{place}")
    for place in range(len(old.places), len(new.places)):
        found += _added(judge, new.places[place], old.rest, f"{path}/items/{place}")
    found += _rest(judge, new, old, path)
    found += _contains(judge, reader, writer, path)
    if (
        reader.keywords.get("uniqueItems") is True
        and writer.keywords.get("uniqueItems") is not True
    ):
        found += judge.line("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems")
    return found


class Items:
    """The schemas of the first items, and of the rest."""

    def __init__(self, typed: Typed) -> None:
        part, keywords = typed.part, typed.keywords
        first, rest = "prefixItems", "items"
        self.is_all = "prefixItems" not in keywords and not isinstance(keywords.get("items"), list)
        if isinstance(keywords.get("items"), list):
            first, rest = "items", "additionalItems"
        places = keywords.get(first)
        self.places = [part.inside(each) for each in places] if isinstance(places, list) else []
        # What neither has evaluated is what stands behind the places.
        known = next((each for each in (rest, "unevaluatedItems") if each in keywords), None)
        self.rest: Part | Shape = part.inside(keywords[known]) if known else ANYTHING


def _removed(judge: Judge, rest: Part | Shape, removed: Part, path: str) -> list[str]:
    if isinstance(judge.shape(rest), Nothing):
        if isinstance(judge.shape(removed), Nothing):
            return []
        return judge.line("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
    found = judge.compare(rest, removed, path)
    if found:
        name = "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        found = [*found, *judge.line(name, path)]
    return found


def _added(judge: Judge, added: Part, rest: Part | Shape, path: str) -> list[str]:
    if isinstance(judge.shape(rest), Anything):
        if isinstance(judge.shape(added), Anything):
            return []
        return judge.line("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", path)
    found = judge.compare(added, rest, path)
    if found:
        name = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        found = [*found, *judge.line(name, path)]
    return found


def _rest(judge: Judge, new: Items, old: Items, path: str) -> list[str]:
    read, written = judge.shape(new.rest), judge.shape(old.rest)
    if new.is_all:
        return judge.compare(new.rest, old.rest, f"{path}/items")
    inner = f"{path}/additionalItems"
    if isinstance(read, Nothing) and not isinstance(written, Nothing):
        return judge.line("ADDITIONAL_ITEMS_REMOVED", inner)
    if isinstance(written, Anything) and not isinstance(read, Anything):
        return judge.line("ADDITIONAL_ITEMS_NARROWED", inner)
    return judge.compare(new.rest, old.rest, inner)


def _contains(judge: Judge, reader: Typed, writer: Typed, path: str) -> list[str]:
    if "contains" not in reader.keywords:
        return []
    if "contains" not in writer.keywords:
        return judge.line("CONTAINS_ADDED", f"{path}/contains")
    after = reader.part.inside(reader.keywords["contains"])
    before = writer.part.inside(writer.keywords["contains"])
    found = judge.compare(after, before, f"{path}/contains")
    if "maxContains" in reader.keywords:
        # What is counted must not become more, either.
        found = [*found, *judge.compare(before, after, f"{path}/contains")]
    least, most = (each.keywords.get("minContains", 1) for each in (writer, reader))
    if not isinstance(least, int) or not isinstance(most, int) or most > least:
        found = [*found, *judge.line("MIN_CONTAINS_INCREASED", f"{path}/minContains")]
    return found
