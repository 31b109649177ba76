"""Java's `.properties` syntax: comments, continued lines, escapes. Source: java.util.Properties.

A file is read as Java reads it, except that its encoding is UTF-8.
"""

from collections.abc import Iterator

from storage_engine.core.errors import ConfigError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str, *, source: str) -> dict[str, str]:
    """Key -> value; of a key given twice the last counts. `source` names the file in errors."""
    result: dict[str, str] = {}
    for number, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        where = f"{source}, line {number}"
        result[_unescape(raw_key, where)] = _unescape(raw_value, where)
    return result


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank ones, continued lines joined, with the first's number."""
    joined, first = "", 0
    # Not `splitlines`, which also splits at characters that are no line ends in Java.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, natural in enumerate(lines, start=1):
        line = natural.lstrip(_BLANK)
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2 == 1:
            joined += line[:-1]
            # Keeps an otherwise empty continued line open.
            if not joined:
                joined = " "
            continue
        yield first, (joined + line).lstrip(_BLANK)
        joined = ""
    if joined.strip(_BLANK):
        yield first, joined.lstrip(_BLANK)


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped: the first `=`, `:` or blank that is not escaped separates."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_BLANK)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    result: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            result.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            result.append(_unicode(text[position : position + 4], where))
            position += 4
        else:
            result.append(_ESCAPES.get(escaped, escaped))
    return "".join(result)


def _unicode(digits: str, where: str) -> str:
    try:
        if len(digits) != 4 or not digits.isalnum():
            raise ValueError
        return chr(int(digits, 16))
    except ValueError:
        raise ConfigError(f"{where}: '\\u{digits}' needs four hexadecimal digits") from None
