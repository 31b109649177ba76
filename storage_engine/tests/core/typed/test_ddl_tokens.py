"""Tokens of DDL and of conditions, and texts that can't be cut into tokens."""

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.ddl_tokens import TokenKind, Tokens


def tokens_of(text):
    tokens = Tokens(text, "the DDL")
    while (token := tokens.next()).kind is not TokenKind.END:
        yield token
    assert tokens.next() == token, "all tokens behind the last one are the end"


def test_a_text_is_cut_into_tokens_with_their_places():
    text = "a-- no, 'no'\n`b ``c` 'it''s /* no */' 1.5e3/* no */<=>.5 5x ''"
    assert list(tokens_of(text)) == [
        (TokenKind.WORD, "a", 0),
        (TokenKind.QUOTED, "b `c", 13),
        (TokenKind.TEXT, "it's /* no */", 21),
        (TokenKind.NUMBER, "1.5e3", 38),
        (TokenKind.SIGN, "<=>", 51),
        (TokenKind.NUMBER, ".5", 54),
        (TokenKind.WORD, "5x", 57),
        (TokenKind.TEXT, "", 60),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("`a INT", "the name that begins at character 1 has no closing backquote"),
        ("a INT COMMENT 'x", "the text that begins at character 15 has no closing apostrophe"),
        ("a INT /* x", "the comment that begins at character 7 has no end"),
        ("a INT, é\u2028 INT, \x00", r"character 16, '\\x00', can't be read"),
    ],
)
def test_what_can_not_be_a_token_is_told_with_its_place(text, message):
    with pytest.raises(ConfigError, match=f"^the DDL: {message}$"):
        list(tokens_of(text))
