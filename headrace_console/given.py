"""Parameters of a request and fields of its body, each of them checked: an error names the wrong
one.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

from headrace_console.problem import ConsoleError
from storage_engine.tools.document import Document, Json

DEFAULT_LIMIT = 50
MOST_LIMIT = 500
MOST_TEXT = 1_000
"""The most characters of a parameter."""


def bad(text: str) -> ConsoleError:
    return ConsoleError("bad_request", text)


class Params:
    """The parameters of a query string."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for key, value in pairs:
            if len(value) > MOST_TEXT:
                raise bad(f"parameter {key[:50]!r} has more than {MOST_TEXT} characters")
            self._values.setdefault(key, []).append(value)

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def text(self, name: str, default: str | None = None) -> str | None:
        values = self._values.get(name)
        return values[-1] if values and values[-1] != "" else default

    def integer(
        self, name: str, default: int | None, *, least: int = 0, most: int = 2**63 - 1
    ) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        number = _whole(text)
        if number is None or not least <= number <= most:
            raise bad(f"parameter '{name}' must be a whole number from {least} to {most}")
        return number

    def integers(self, name: str, *, most: int = 2**31 - 1) -> list[int]:
        found = []
        for text in self.all(name):
            number = _whole(text)
            if number is None or not 0 <= number <= most:
                raise bad(f"parameter '{name}' must be a whole number from 0 to {most}")
            found.append(number)
        return found

    def flag(self, name: str) -> bool:
        text = self.text(name, "0")
        if text not in ("0", "1"):
            raise bad(f"parameter '{name}' must be 0 or 1")
        return text == "1"


def _whole(text: str) -> int | None:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        return None
    return int(text)


class Body:
    """A JSON object of a request's body."""

    def __init__(self, document: Mapping[str, Json], place: str = "") -> None:
        self._document = document
        self._place = place

    @classmethod
    def parse(cls, data: bytes) -> "Body":
        return cls(json_object(data))

    def has(self, name: str) -> bool:
        return self._document.get(name) is not None

    def text(self, name: str, *, most: int = MOST_TEXT) -> str:
        value = self.text_or_none(name, most=most)
        if value is None:
            raise bad(f"'{self._place}{name}' is missing; give a text")
        return value

    def text_or_none(self, name: str, *, most: int = MOST_TEXT) -> str | None:
        value = self._document.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > most or not _is_text(value):
            raise bad(f"'{self._place}{name}' must be a text of at most {most} characters")
        return value

    def integer_or_none(self, name: str, *, least: int = 0, most: int = 2**63 - 1) -> int | None:
        value = self._document.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise bad(f"'{self._place}{name}' must be a whole number from {least} to {most}")
        return value

    def texts(self, name: str, *, most: int = 500) -> list[str]:
        value = self._document.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > most:
            raise bad(f"'{self._place}{name}' must be a list of at most {most} texts")
        for each in value:
            if not isinstance(each, str) or len(each) > MOST_TEXT or not _is_text(each):
                raise bad(f"'{self._place}{name}' must be a list of texts")
        return list(value)

    def settings(self, name: str) -> dict[str, str | None]:
        """Return a mapping of names to texts; null: back to the default."""
        value = self._document.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or len(value) > 200:
            raise bad(f"'{name}' must be an object of settings")
        for key, each in value.items():
            if not isinstance(each, str | None) or not _is_text(key + (each or "")):
                raise bad(f"'{name}.{key[:50]}' must be a text or null")
        return dict(value)

    def part(self, name: str) -> "Body | None":
        value = self._document.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise bad(f"'{self._place}{name}' must be an object")
        return Body(value, f"{self._place}{name}.")

    def parts(self, name: str, *, most: int) -> list["Body"]:
        value = self._document.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > most:
            raise bad(f"'{self._place}{name}' must be a list of at most {most} objects")
        found = []
        for place, each in enumerate(value):
            if not isinstance(each, dict):
                raise bad(f"'{self._place}{name}[{place}]' must be an object")
            found.append(Body(each, f"{self._place}{name}[{place}]."))
        return found

    def raw(self, name: str) -> Json:
        return self._document.get(name)

    def wrong(self, name: str, must: str) -> ConsoleError:
        """Return the error for a field that is not what it must be."""
        return bad(f"'{self._place}{name}' must be {must}")

    def confirm(self, name: str) -> None:
        """ConsoleError unless the user has typed again the name of the object to change."""
        if self.text_or_none("confirm") != name:
            raise bad(f"'confirm' must be the name that is changed, '{name}', typed again")


def json_object(data: bytes, *, nan_is_null: bool = False) -> Document:
    """Parse an object; ConsoleError if it is none. `nan_is_null`: NaN and Infinity, which are not
    JSON but which programs write, are null."""
    constant = (lambda name: None) if nan_is_null else _no_constant
    try:
        document = json.loads(data, parse_constant=constant)
    except (ValueError, RecursionError):
        raise bad("the body must be a JSON object in UTF-8") from None
    if not isinstance(document, dict):
        raise bad("the body must be a JSON object")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
