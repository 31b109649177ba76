"""Conditions on columns as text: `fare > 10 AND id IN (1, 2) AND at >= TIMESTAMP '2026-01-31'`.

The text is a small part of Spark's SQL: comparisons of a column with a literal, IN, BETWEEN, IS
NULL and IS NOT NULL, joined by AND. Times without a zone are UTC, or refused. In texts an
apostrophe is doubled, and a backslash is a character like any other.
"""

from typing import NoReturn

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.bounded_json import check_text_size
from storage_engine.core.typed.column_types import ddl_of, quoted_name
from storage_engine.core.typed.comparisons import (
    MAX_COMPARISONS,
    MAX_VALUES,
    Comparison,
    Literal,
    Operator,
)
from storage_engine.core.typed.ddl_tokens import Token, TokenKind, Tokens
from storage_engine.core.typed.literals import literal_of
from storage_engine.core.typed.topic_schema import SchemaColumn, SchemaVersion

_OPERATORS = {
    "=": Operator.EQ,
    "==": Operator.EQ,
    "!=": Operator.NE,
    "<>": Operator.NE,
    "<": Operator.LT,
    "<=": Operator.LE,
    ">": Operator.GT,
    ">=": Operator.GE,
}

_ONLY = "conditions are a column, =, <>, <, <=, >, >=, IN, BETWEEN or IS [NOT] NULL, joined by AND"


def parse_where(
    text: str, version: SchemaVersion, *, needs_zone: bool = False
) -> tuple[Comparison, ...]:
    """Return the comparisons, all of which rows have to match; ConfigError, with the place, for a
    text that can't be read, a column that `version` does not have, or a value of another type.
    `needs_zone`: times of TIMESTAMP columns must say their zone."""
    check_text_size(text, "the condition")
    return _WhereReader(Tokens(text, "the condition"), version, needs_zone).conjunction()


class _WhereReader:
    """Reads tokens one after the other."""

    def __init__(self, tokens: Tokens, version: SchemaVersion, needs_zone: bool) -> None:
        self._tokens = tokens
        self._version = version
        self._needs_zone = needs_zone

    def conjunction(self) -> tuple[Comparison, ...]:
        found = list(self._condition())
        while self._tokens.peek.is_word("AND"):
            self._tokens.next()
            found += self._condition()
            if len(found) > MAX_COMPARISONS:
                raise ConfigError(
                    f"the condition has more than {MAX_COMPARISONS} comparisons: use IN, or fewer"
                )
        if self._tokens.peek.kind is not TokenKind.END:
            self._refuse(self._tokens.peek, _ONLY)
        return tuple(found)

    def _condition(self) -> tuple[Comparison, ...]:
        column = self._column()
        token = self._tokens.next()
        if token.kind is TokenKind.SIGN and token.text in _OPERATORS:
            return (Comparison(column.column_id, _OPERATORS[token.text], (self._literal(column),)),)
        if token.is_word("IN"):
            return (Comparison(column.column_id, Operator.IN, self._literals(column)),)
        if token.is_word("IS"):
            return (self._null(column),)
        if token.is_word("BETWEEN"):
            least = self._literal(column)
            self._word("AND")
            most = self._literal(column)
            return (
                Comparison(column.column_id, Operator.GE, (least,)),
                Comparison(column.column_id, Operator.LE, (most,)),
            )
        self._refuse(token, _ONLY)

    def _null(self, column: SchemaColumn) -> Comparison:
        operator = Operator.IS_NULL
        if self._tokens.peek.is_word("NOT"):
            self._tokens.next()
            operator = Operator.IS_NOT_NULL
        self._word("NULL")
        return Comparison(column.column_id, operator)

    def _column(self) -> SchemaColumn:
        token = self._tokens.next()
        if token.is_word("NOT") or token.is_sign("("):
            self._refuse(token, _ONLY)
        if token.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            self._refuse(token, f"a column is expected; {_ONLY}")
        if self._tokens.peek.is_sign("(", "."):
            self._refuse(
                self._tokens.peek, f"functions and nested fields are not supported; {_ONLY}"
            )
        return self._version.column(token.text)

    def _literals(self, column: SchemaColumn) -> tuple[Literal, ...]:
        self._tokens.sign("(")
        values = [self._literal(column)]
        while self._tokens.peek.is_sign(","):
            self._tokens.next()
            values.append(self._literal(column))
            if len(values) > MAX_VALUES:
                raise ConfigError(
                    f"IN of column {quoted_name(column.name)} has more than {MAX_VALUES:,} values: "
                    "use a range"
                )
        self._tokens.sign(")")
        return tuple(values)

    def _literal(self, column: SchemaColumn) -> Literal:
        """Read a literal, which may begin with a sign or with the name of its type."""
        first = self._tokens.next()
        token, prefix = first, ""
        if first.is_sign("-", "+"):
            prefix = first.text
            token = self._tokens.next()
        elif first.is_word("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "X", "INTERVAL"):
            prefix = first.text.upper()
            token = self._tokens.next()
        if first.is_word("NULL"):
            self._refuse(first, "nothing is equal to NULL: use IS NULL or IS NOT NULL")
        if prefix == "INTERVAL":
            self._interval_words()
        try:
            value = literal_of(column.type, token, prefix, needs_zone=self._needs_zone)
        except ValueError as error:
            reason = f"{error}; " if str(error) else ""
            self._refuse(
                token,
                f"{reason}column {quoted_name(column.name)} is {ddl_of(column.type)[:80]}, and the "
                "value must be one of that type",
            )
        return value

    def _interval_words(self) -> None:
        for word in ("DAY", "TO", "SECOND"):
            token = self._tokens.next()
            if not token.is_word(word):
                self._refuse(token, "an interval is INTERVAL '1 02:03:04.5' DAY TO SECOND")

    def _word(self, word: str) -> None:
        token = self._tokens.next()
        if not token.is_word(word):
            self._refuse(token, f"{word} is expected")

    def _refuse(self, token: Token, reason: str) -> NoReturn:
        raise self._tokens.error(token, reason)
