"""Reads `sasl.jaas.config`, the line in which Java's users write the secrets of a log-in.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";

One login module, a control flag, options, a semicolon. Values stand in quotes, in which a backslash
escapes, or are plain words. No error repeats what was written, because that may be the secret.
Source: KIP-85; the documentation of Java's StreamTokenizer for words, quotes and comments.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from storage_engine.core.errors import ConfigError

MAX_LENGTH = 65_536
"""A line with a key and a certificate in it is far below; more is a file that was taken for it."""

_FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
    | (?P<word> [\w.$+-]+ )
    | (?P<mark> [=;] )""",
    re.VERBOSE | re.DOTALL,
)

_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasEntry:
    """A login module and its options."""

    module: str
    """The name of the class alone: a shaded copy of Kafka's client has it in another package."""

    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str, *, key: str) -> JaasEntry:
    """ConfigError that names the setting `key`, and never what is in it."""
    tokens = _tokens(text, key)
    if len(tokens) < 3 or tokens[0].mark or tokens[1].text.lower() not in _FLAGS:
        raise _bad(key, "it must begin with a login module and the word 'required'")
    if tokens[-1].mark != ";":
        raise _bad(key, "its end must be a semicolon")
    body = tokens[2:-1]
    options: dict[str, str] = {}
    for place in range(0, len(body), 3):
        name, *rest = body[place : place + 3]
        if any(token.mark == ";" for token in (name, *rest)):
            raise _bad(key, "it has more than one login module; leave one of them out")
        if name.mark or [token.mark for token in rest] != ["=", ""]:
            raise _bad(
                key,
                "each option must be of the form name=\"value\"; quotes and '\\' in a value "
                "need a '\\' before them",
            )
        if name.text in options:
            raise _bad(key, f"the option '{_shown(name.text)}' is there twice")
        options[name.text] = rest[1].text
    return JaasEntry(module=tokens[0].text.rpartition(".")[2], options=options)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    mark: str = ""
    """`=` or `;`; empty for a word or a quoted text."""


def _tokens(text: str, key: str) -> list[_Token]:
    if len(text) > MAX_LENGTH:
        raise _bad(key, f"it has more than {MAX_LENGTH} characters")
    tokens = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _bad(
                key, f"character {position + 1} belongs to no option; put values into quotes"
            )
        position = found.end()
        if (quoted := found["quoted"]) is not None:
            tokens.append(_Token(_ESCAPE.sub(_unescaped, quoted[1:-1])))
        elif (word := found["word"]) is not None:
            tokens.append(_Token(word))
        elif (mark := found["mark"]) is not None:
            tokens.append(_Token(mark, mark))
    return tokens


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    return chr(int(escaped, 8)) if escaped.isdigit() else _ESCAPED.get(escaped, escaped)


def _shown(name: str) -> str:
    """The name of an option; a value in its place is cut."""
    return name if re.fullmatch(r"[A-Za-z_]{1,40}", name) else "…"


def _bad(key: str, reason: str) -> ConfigError:
    return ConfigError(f"{key} can't be read: {reason}")
