"""Keys, values and headers for a browser: cut to a limit, with a mark of what was done.

A value may be anything: ten megabytes, invalid UTF-8, HTML, JSON with a hundred thousand levels.
The browser gets a text, and what was done to it. `kind` is json only for a value that JSON.parse
accepts and a page can walk over. Source: R-CON8.
"""

import json
import math
from typing import NoReturn

from storage_engine.tools.document import Document, Json

LIST_CHARS = 2_048
"""The most characters of a value in a list of messages."""
DETAIL_CHARS = 256 << 10
"""The most characters of a value on its own page."""
MOST_DEPTH = 64
"""The most levels of JSON; deeper values are shown as text."""
SAFE_INTEGER = 2**53 - 1
"""The largest integer that a JavaScript number represents exactly."""
MOST_CELL_CHARS = 256
MOST_CELL_ITEMS = 20
_MOST_CONTROLS = 0.1
"""The largest share of control characters in a text; with more it is binary."""


def shown_value(data: bytes | None, most_chars: int, *, pretty: bool = False) -> Document | None:
    """Return the document of a key or value; None for null."""
    if data is None:
        return None
    text, is_cut = decoded(data, most_chars)
    if text is None or _is_binary(text):
        document = hexadecimal(data, most_chars)
        document["invalid_utf8"] = text is None
        return document
    parsed = None if is_cut else parsed_json(text)
    document = _document("text" if parsed is None else "json", text, data, is_cut)
    if pretty and parsed is not None:
        document["pretty"] = json.dumps(parsed[0], ensure_ascii=False, indent=2)
    return document


def hexadecimal(data: bytes, most_chars: int) -> Document:
    """Return the document of bytes as they are."""
    shown = data[: most_chars // 3]
    return _document("binary", shown.hex(" "), data, len(shown) < len(data))


def _document(kind: str, text: str, data: bytes, is_cut: bool) -> Document:
    return {"kind": kind, "text": text, "bytes": len(data), "cut": is_cut, "invalid_utf8": False}


def decoded(data: bytes, most_chars: int) -> tuple[str | None, bool]:
    """Return the first characters, None if they are not UTF-8; and whether there are more."""
    head = data[: 4 * most_chars]
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut at the end of `head`.
        if len(head) == len(data) or error.start < len(head) - 3:
            return None, len(head) < len(data)
        text = head[: error.start].decode("utf-8")
    return text[:most_chars], len(text) > most_chars or len(head) < len(data)


def shown_text(data: bytes | str | None, most_chars: int = LIST_CHARS) -> str | None:
    """Return a text, cut to `most_chars`, with marks in the place of invalid UTF-8."""
    if data is None:
        return None
    text = data if isinstance(data, str) else data[: 4 * most_chars].decode("utf-8", "replace")
    return text if len(text) <= most_chars else text[:most_chars] + "…"


def _is_binary(text: str) -> bool:
    controls = sum(each < " " and each not in "\t\n\r" for each in text)
    return controls > _MOST_CONTROLS * len(text)


def parsed_json(text: str) -> tuple[Json] | None:
    """Return the object or array, in a tuple; None for other texts, or JSON unfit for browsers."""
    if text.lstrip()[:1] not in ("{", "[") or _depth(text) > MOST_DEPTH:
        return None
    try:
        return (json.loads(text, parse_constant=_refused),)
    except (ValueError, RecursionError):
        return None


def _refused(name: str) -> NoReturn:
    raise ValueError(name)


def _depth(text: str) -> int:
    """Return the deepest level, at most MOST_DEPTH + 1; brackets in strings do not count."""
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
    """Return a table's cell, and whether it was cut. Numbers too large for JavaScript are texts."""
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
