"""Keys, values and headers as a browser gets them: cut, marked, and never more than that.

A value may be anything: ten megabytes, no UTF-8, HTML, JSON with a hundred thousand levels. What is
sent is a text, with what was done to it. `kind` json is only said of what JSON.parse takes and a
page can walk over. Source: R-CON8.
"""

import json
import math
from typing import NoReturn

from storage_engine.tools.document import Document, Json

LIST_CHARS = 2_048
"""Of a value in a list of messages."""
DETAIL_CHARS = 256 << 10
"""Of a value on its own page."""
MOST_DEPTH = 64
"""Levels of JSON; deeper ones are shown as text."""
SAFE_INTEGER = 2**53 - 1
"""The largest that JavaScript's numbers keep."""
MOST_CELL_CHARS = 256
MOST_CELL_ITEMS = 20
_MOST_CONTROLS = 0.1
"""Of a text; one with more is binary that happens to be UTF-8."""


def shown_value(data: bytes | None, most_chars: int, *, pretty: bool = False) -> Document | None:
    """The document of a key or value; None for null."""
    if data is None:
        return None
    text, is_cut = decoded(data, most_chars)
    if text is None or _is_binary(text):
        shown = data[: most_chars // 3]
        document = _document("binary", shown.hex(" "), data, len(shown) < len(data))
        document["invalid_utf8"] = text is None
        return document
    parsed = None if is_cut else parsed_json(text)
    document = _document("text" if parsed is None else "json", text, data, is_cut)
    if pretty and parsed is not None:
        document["pretty"] = json.dumps(parsed[0], ensure_ascii=False, indent=2)
    return document


def _document(kind: str, text: str, data: bytes, is_cut: bool) -> Document:
    return {"kind": kind, "text": text, "bytes": len(data), "cut": is_cut, "invalid_utf8": False}


def decoded(data: bytes, most_chars: int) -> tuple[str | None, bool]:
    """The first characters, and whether there are more; None for what is no UTF-8 there."""
    head = data[: 4 * most_chars]
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut at the end of what was taken.
        if len(head) == len(data) or error.start < len(head) - 3:
            return None, len(head) < len(data)
        text = head[: error.start].decode("utf-8")
    return text[:most_chars], len(text) > most_chars or len(head) < len(data)


def shown_text(data: bytes | str | None, most_chars: int = LIST_CHARS) -> str | None:
    """A short text, with marks in the place of what is none."""
    if data is None:
        return None
    text = data if isinstance(data, str) else data[: 4 * most_chars].decode("utf-8", "replace")
    return text if len(text) <= most_chars else text[:most_chars] + "…"


def _is_binary(text: str) -> bool:
    controls = sum(each < " " and each not in "\t\n\r" for each in text)
    return controls > _MOST_CONTROLS * len(text)


def parsed_json(text: str) -> tuple[Json] | None:
    """The object or array that the text is; None when it is none, or none for a browser."""
    if text.lstrip()[:1] not in ("{", "[") or _depth(text) > MOST_DEPTH:
        return None
    try:
        return (json.loads(text, parse_constant=_refused),)
    except (ValueError, RecursionError):
        return None


def _refused(name: str) -> NoReturn:
    raise ValueError(name)


def _depth(text: str) -> int:
    """The deepest level; brackets in strings do not count."""
    depth = deepest = 0
    in_string = escaped = False
    for each in text:
        if in_string:
            if escaped:
                escaped = False
            elif each == "\\":
                escaped = True
            elif each == '"':
                in_string = False
        elif each == '"':
            in_string = True
        elif each in "{[":
            depth += 1
            if depth > deepest:
                deepest = depth
                if deepest > MOST_DEPTH:
                    return deepest
        elif each in "}]":
            depth -= 1
    return deepest


def shown_cell(value: Json, depth: int = 0) -> tuple[Json, bool]:
    """A cell of a table, and whether it was cut. Numbers that JavaScript can't keep are texts."""
    if isinstance(value, bool) or value is None:
        return value, False
    if isinstance(value, int):
        return (value if abs(value) <= SAFE_INTEGER else str(value)), False
    if isinstance(value, float):
        return (value if math.isfinite(value) else str(value)), False
    if isinstance(value, str):
        return value[:MOST_CELL_CHARS], len(value) > MOST_CELL_CHARS
    if depth >= 3:
        return "…", True
    if isinstance(value, list):
        parts = [shown_cell(each, depth + 1) for each in value[:MOST_CELL_ITEMS]]
        is_cut = len(value) > MOST_CELL_ITEMS or any(cut for _, cut in parts)
        return [each for each, _ in parts], is_cut
    assert isinstance(value, dict)
    items = list(value.items())[:MOST_CELL_ITEMS]
    cells = {key[:MOST_CELL_CHARS]: shown_cell(each, depth + 1) for key, each in items}
    is_cut = len(value) > MOST_CELL_ITEMS or any(cut for _, cut in cells.values())
    return {key: each for key, (each, _) in cells.items()}, is_cut
