"""Cuts Spark's DDL, and conditions in its SQL, into tokens that know where they stand."""

import enum
import re
from typing import NamedTuple

from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable


class TokenKind(enum.Enum):
    """The kinds of tokens."""

    WORD = "word"
    """A name or a keyword."""
    QUOTED = "quoted name"
    """A name in backquotes; the text is without them."""
    NUMBER = "number"
    TEXT = "text"
    """A string literal; the text is without its apostrophes."""
    SIGN = "sign"
    END = "end"


class Token(NamedTuple):
    """A token, and its place in the text."""

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


class Tokens:
    """The tokens of a text, each cut when it is read: a parser stops at the first one that does not
    fit. Comments are left out; all tokens behind the last one are of kind END."""

    def __init__(self, text: str, what: str) -> None:
        """`what`: the text's name for errors."""
        self._text = text
        self._what = what
        self._ahead: Token | None = None
        self._place = 0

    @property
    def peek(self) -> Token:
        """Return the next token, which stays the next; ConfigError for an unreadable text."""
        if self._ahead is None:
            self._ahead = self._cut()
        return self._ahead

    def next(self) -> Token:
        """Return the next token; ConfigError for an unreadable text."""
        token = self.peek
        self._ahead = None
        return token

    def sign(self, sign: str) -> None:
        """Pass over that sign; ConfigError where another token stands."""
        token = self.next()
        if not token.is_sign(sign):
            raise self.error(token, f"'{sign}' is expected")

    def error(self, token: Token, reason: str) -> ConfigError:
        """Return the error for a token that can't stand where it does."""
        return ConfigError(
            f"{self._what} can't be read at character {token.place + 1}, {token.shown}: {reason}"
        )

    def _cut(self) -> Token:
        while self._place < len(self._text):
            found = _PATTERN.match(self._text, self._place)
            if found is None or found.lastgroup == "unclosed":
                raise ConfigError(f"{self._what}: {_unreadable(self._text, self._place)}")
            self._place = found.end()
            if found.lastgroup != "space":
                return _token(found)
        return Token(TokenKind.END, "", len(self._text))


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
