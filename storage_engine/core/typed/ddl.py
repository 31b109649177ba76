"""Schemas in Spark's DDL: `id BIGINT NOT NULL, at TIMESTAMP, who STRUCT<name: STRING>`.

Read are the names that Spark gives to types, in any case, and comments, which are dropped. Beyond
Spark's DDL, `NOT NULL` may follow the element of an array and the value of a map.
"""

from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.bounded_json import check_text_size
from storage_engine.core.typed.ddl_tokens import Token, TokenKind, Tokens

T = TypeVar("T")

_SIMPLE: dict[str, types.ColumnType] = {
    "BOOLEAN": types.BooleanColumn(),
    "TINYINT": types.IntegerColumn(8),
    "BYTE": types.IntegerColumn(8),
    "SMALLINT": types.IntegerColumn(16),
    "SHORT": types.IntegerColumn(16),
    "INT": types.IntegerColumn(32),
    "INTEGER": types.IntegerColumn(32),
    "BIGINT": types.IntegerColumn(64),
    "LONG": types.IntegerColumn(64),
    "FLOAT": types.FloatColumn(32),
    "REAL": types.FloatColumn(32),
    "DOUBLE": types.FloatColumn(64),
    "STRING": types.StringColumn(),
    "BINARY": types.BinaryColumn(),
    "DATE": types.DateColumn(),
    "TIMESTAMP": types.TimestampColumn(with_zone=True),
    "TIMESTAMP_LTZ": types.TimestampColumn(with_zone=True),
    "TIMESTAMP_NTZ": types.TimestampColumn(with_zone=False),
}

_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")

_REFUSED = {
    "CHAR": "use STRING",
    "CHARACTER": "use STRING",
    "VARCHAR": "use STRING",
    "VOID": "use the type that the column is going to have",
    "VARIANT": "use STRING with JSON in it, or a STRUCT",
    "TIME": "use TIMESTAMP_NTZ, or BIGINT",
    "GEOMETRY": "use BINARY",
    "GEOGRAPHY": "use BINARY",
}


def parse_ddl(text: str) -> list[types.ColumnSpec]:
    """Return the columns of a text; ConfigError, with the place, for one that can't be read."""
    check_text_size(text, "the DDL")
    reader = _DdlReader(Tokens(text, "the DDL"))
    columns = [types.ColumnSpec(*part) for part in reader.columns()]
    reader.expect_end()
    return columns


def parse_type(text: str, name: str = "") -> types.ColumnType:
    """Return the type that a text names; `name` is the column's, for errors."""
    what = f"the type of column {types.quoted_name(name)}" if name else "the type"
    check_text_size(text, what)
    reader = _DdlReader(Tokens(text, what))
    column_type = reader.type(1)
    reader.expect_end()
    return column_type


def render_ddl(columns: Iterable[types.ColumnSpec], *, exact: bool = False) -> str:
    """Return the columns as `parse_ddl` reads them. `exact` is as in `ddl_of`."""
    return ", ".join(
        f"{types.quoted_name(column.name)} {types.ddl_of(column.type, exact=exact)}"
        f"{'' if column.nullable else ' NOT NULL'}"
        for column in columns
    )


class _DdlReader(types.TypeCount):
    """Reads tokens one after the other."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens

    def columns(self) -> list[tuple[str, types.ColumnType, bool]]:
        """Return names, types and whether they are nullable, up to what is none of them."""
        return self._list(lambda: self._named(1))

    def type(self, depth: int) -> types.ColumnType:
        """Return the next type."""
        self.step(depth)
        token = self._tokens.next()
        name = token.text.upper()
        if token.kind is not TokenKind.WORD:
            self._refuse(token, "a type is expected")
        if name in _SIMPLE:
            return self._simple(name)
        if name in _DECIMALS:
            return self._decimal(token)
        match name:
            case "INTERVAL":
                return self._interval()
            case "ARRAY":
                element = self._inside(lambda: self._element(depth + 1))
                return types.ArrayColumn(*element)
            case "MAP":
                return self._inside(lambda: self._map(depth + 1))
            case "STRUCT":
                return self._struct(depth + 1)
        if name in _REFUSED:
            self._refuse(token, f"a column can't have that type: {_REFUSED[name]}")
        self._refuse(token, "no type has that name")

    def expect_end(self) -> None:
        """ConfigError when anything is left."""
        if self._tokens.peek.is_sign(";"):
            self._tokens.next()
        if self._tokens.peek.kind is not TokenKind.END:
            self._refuse(self._tokens.peek, "a comma or the end is expected")

    def _simple(self, name: str) -> types.ColumnType:
        if self._tokens.peek.is_word("COLLATE"):
            self._refuse(self._tokens.peek, "collations are not kept: leave it out")
        if name == "TIMESTAMP" and self._tokens.peek.is_word("WITHOUT", "WITH"):
            self._refuse(self._tokens.peek, "write TIMESTAMP_NTZ or TIMESTAMP")
        return _SIMPLE[name]

    def _decimal(self, token: Token) -> types.ColumnType:
        precision, scale = 10, 0
        if self._tokens.peek.is_sign("("):
            self._tokens.next()
            precision = self._integer()
            if self._tokens.peek.is_sign(","):
                self._tokens.next()
                scale = self._integer()
            self._tokens.sign(")")
        try:
            return types.DecimalColumn(precision, scale)
        except ConfigError as error:
            raise self._tokens.error(token, str(error)) from error

    def _interval(self) -> types.ColumnType:
        words = [self._tokens.next() for _ in range(3) if self._tokens.peek.kind is TokenKind.WORD]
        if [word.text.upper() for word in words] != ["DAY", "TO", "SECOND"]:
            self._refuse(
                self._tokens.peek, "of intervals only INTERVAL DAY TO SECOND can be stored"
            )
        return types.IntervalColumn()

    def _map(self, depth: int) -> types.ColumnType:
        key = self.type(depth)
        self._tokens.sign(",")
        value, nullable = self._element(depth)
        return types.MapColumn(key, value, nullable)

    def _struct(self, depth: int) -> types.ColumnType:
        token = self._tokens.peek
        if token.is_sign("<>"):
            self._refuse(token, "a STRUCT needs a field")
        fields = self._inside(lambda: self._list(lambda: self._named(depth)))
        try:
            types.check_field_names(name for name, _, _ in fields)
        except ConfigError as error:
            raise self._tokens.error(token, str(error)) from error
        return types.StructColumn(tuple(types.StructColumnField(*each) for each in fields))

    def _named(self, depth: int) -> tuple[str, types.ColumnType, bool]:
        """Return a column or field: `name [:] type [NOT NULL] [COMMENT 'text']`."""
        token = self._tokens.next()
        if token.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            self._refuse(token, "a name is expected; names with other characters need backquotes")
        if self._tokens.peek.is_sign(":"):
            self._tokens.next()
        column_type, nullable = self._element(depth)
        if self._tokens.peek.is_word("COMMENT"):
            self._tokens.next()
            if self._tokens.peek.kind is not TokenKind.TEXT:
                self._refuse(self._tokens.peek, "COMMENT needs a text between apostrophes")
            self._tokens.next()
        return token.text, column_type, nullable

    def _element(self, depth: int) -> tuple[types.ColumnType, bool]:
        """Return a type, and whether its values may be null."""
        column_type = self.type(depth)
        if self._tokens.peek.is_word("NULL"):
            self._tokens.next()
            return column_type, True
        if not self._tokens.peek.is_word("NOT"):
            return column_type, True
        self._tokens.next()
        if not self._tokens.peek.is_word("NULL"):
            self._refuse(self._tokens.peek, "NULL is expected behind NOT")
        self._tokens.next()
        return column_type, False

    def _inside(self, read: Callable[[], T]) -> T:
        self._tokens.sign("<")
        content = read()
        self._tokens.sign(">")
        return content

    def _list(self, read: Callable[[], T]) -> list[T]:
        items = [read()]
        while self._tokens.peek.is_sign(","):
            self._tokens.next()
            items.append(read())
        return items

    def _integer(self) -> int:
        token = self._tokens.next()
        if token.kind is not TokenKind.NUMBER or not token.text.isdigit() or len(token.text) > 9:
            self._refuse(token, "a whole number is expected")
        return int(token.text)

    def _refuse(self, token: Token, reason: str) -> NoReturn:
        raise self._tokens.error(token, reason)
