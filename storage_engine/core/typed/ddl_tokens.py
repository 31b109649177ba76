"""Cuts Spark's DDL, and conditions in its SQL, into tokens that know where they stand."""

import enum
import re
from typing import NamedTuple

from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable


class TokenKind(enum.Enum):
    """What a token is."""

    WORD = "word"
    """A name or a keyword."""
    QUOTED = "quoted name"
    """A name in backquotes; the text is without them."""
    NUMBER = "number"
    TEXT = "text"
    """Between apostrophes; the text is without them."""
    SIGN = "sign"
    END = "end"


class Token(NamedTuple):
    """A piece of a text."""

    kind: TokenKind
    text: str
    place: int
    """The index of its first character."""

    def is_word(self, *words: str) -> bool:
        return self.kind is TokenKind.WORD and self.text.upper() in words

    def is_sign(self, *signs: str) -> bool:
        return self.kind is TokenKind.SIGN and self.text in signs

    @property
    def shown(self) -> str:
        """Return the token for an error, in one line."""
        if self.kind is TokenKind.END:
            return "the end of the text"
        return f"'{printable(self.text[:80])}'"


_PATTERN = re.compile(
    r"""
    (?P<space> \s+ | --[^\n]* | /\*.*?\*/ )
  | (?P<unclosed> /\* )
  | (?P<quoted> `(?:[^`]|``)*` )
  | (?P<text> '(?:[^']|'')*' )
  | (?P<number> (?:\d+(?:\.\d*)? | \.\d+) (?:[eE][+-]?\d+)? (?![\w.]) )
  | (?P<word> \w+ )
  | (?P<sign> <=>|<>|<=|>=|!=|==|[-+<>=!(),:;.*/%|&^~"{}\[\]] )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens_of(text: str, what: str) -> list[Token]:
    """Return the tokens with one of kind END behind them; ConfigError for what is none. Comments
    are left out."""
    tokens: list[Token] = []
    place = 0
    while place < len(text):
        found = _PATTERN.match(text, place)
        if found is None or found.lastgroup == "unclosed":
            raise ConfigError(f"{what}: {_unreadable(text, place)}")
        if found.lastgroup != "space":
            tokens.append(_token(found))
        place = found.end()
    tokens.append(Token(TokenKind.END, "", len(text)))
    return tokens


def _token(found: re.Match[str]) -> Token:
    text = found.group()
    match found.lastgroup:
        case "quoted":
            return Token(TokenKind.QUOTED, text[1:-1].replace("``", "`"), found.start())
        case "text":
            return Token(TokenKind.TEXT, text[1:-1].replace("''", "'"), found.start())
        case "number":
            return Token(TokenKind.NUMBER, text, found.start())
        case "word":
            return Token(TokenKind.WORD, text, found.start())
        case _:
            return Token(TokenKind.SIGN, text, found.start())


def _unreadable(text: str, place: int) -> str:
    character = text[place]
    match character:
        case "'":
            return f"the text that begins at character {place + 1} has no closing apostrophe"
        case "`":
            return f"the name that begins at character {place + 1} has no closing backquote"
        case "/":
            return f"the comment that begins at character {place + 1} has no end"
        case _:
            return f"character {place + 1}, '{printable(character)}', can't be read"
