"""Values of columns as SQL writes them.

Dates become days since 1970-01-01, times and intervals microseconds. A value that the column's type
can't hold exactly is refused, as a comparison with it would not be the one that was written.
"""

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import Literal
from storage_engine.core.typed.ddl_tokens import Token, TokenKind

_EPOCH = datetime(1970, 1, 1)  # as many microseconds as the same time in UTC
_EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)

_MAX_DIGITS = 400
"""No double has more digits before the point than 309."""

_INTERVAL = re.compile(r"([+-]?)(\d{1,9}) (\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?", re.ASCII)

_NO_NUMBERS = {
    "nan": math.nan,
    "infinity": math.inf,
    "inf": math.inf,
    "-infinity": -math.inf,
    "-inf": -math.inf,
}
"""The texts that Spark casts to doubles which no SQL number can express."""

_TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")

_DATE = r"\d{4}-\d{2}-\d{2}"
_CLOCK = r"\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?"
_TIME = re.compile(rf"({_DATE}(?:[T ]{_CLOCK})?) ?(Z|UTC|[+-]\d{{2}}:\d{{2}})?", re.ASCII)
"""Other forms that Python reads, such as 20260131, are other times for Spark."""


def literal_of(
    column_type: types.ColumnType, token: Token, prefix: str, *, needs_zone: bool = False
) -> Literal:
    """Return the value of a token for a column of that type. `prefix` is what stood before it: a
    sign, or the name of a type in capitals. ValueError, perhaps with a reason, for one of another
    type. A time without a zone is UTC, or refused with `needs_zone`."""
    match column_type:
        case types.BooleanColumn():
            return _boolean(token, prefix)
        case types.IntegerColumn(bits):
            return _integer(token, prefix, bits)
        case types.DecimalColumn():
            return _decimal(token, prefix, column_type)
        case types.FloatColumn():
            return _float(token, prefix)
        case types.StringColumn():
            return _text(token, prefix, ("",))
        case types.BinaryColumn():
            return bytes.fromhex(_text(token, prefix, ("X",)))
        case types.DateColumn():
            return _days(_text(token, prefix, ("", "DATE")))
        case types.TimestampColumn(with_zone):
            return _microseconds(_text(token, prefix, ("", *_TIMES)), with_zone, needs_zone)
        case types.IntervalColumn():
            return _interval(_text(token, prefix, ("INTERVAL",)))
        case _:
            raise ValueError("nested columns can only be compared with NULL")


def _boolean(token: Token, prefix: str) -> bool:
    if prefix or not token.is_word("TRUE", "FALSE"):
        raise ValueError
    return token.is_word("TRUE")


def _number(token: Token, prefix: str) -> Decimal:
    if prefix not in ("", "-", "+") or token.kind is not TokenKind.NUMBER:
        raise ValueError
    if len(token.text) > _MAX_DIGITS:
        raise ValueError(f"the number has more than {_MAX_DIGITS} characters")
    number = Decimal(token.text)
    if abs(number.adjusted()) > _MAX_DIGITS:
        raise ValueError("the number is out of range")
    return number.copy_negate() if prefix == "-" else number


def _integer(token: Token, prefix: str, bits: int) -> int:
    number = _number(token, prefix)
    if number != number.to_integral_value() or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"the number is not a whole one of {bits} bits")
    return int(number)


def _decimal(token: Token, prefix: str, column_type: types.DecimalColumn) -> Decimal:
    number = _number(token, prefix)
    scale = column_type.scale
    sign, digits, exponent = number.as_tuple()
    unscaled = int("".join(map(str, digits)))
    shift = int(exponent) + scale
    if shift < 0:
        unscaled, rest = divmod(unscaled, 10**-shift)
        if rest:
            raise ValueError(f"the number has more than {scale} digits behind the point")
    else:
        unscaled *= 10**shift
    if unscaled >= 10**column_type.precision:
        raise ValueError(f"the number has more than {column_type.precision - scale} digits")
    return Decimal((sign, tuple(map(int, str(unscaled))), -scale))


def _float(token: Token, prefix: str) -> float:
    if token.kind is TokenKind.TEXT and not prefix:
        value = _NO_NUMBERS.get(token.text.strip().lower())
        if value is None:
            raise ValueError
        return value
    value = float(_number(token, prefix))
    if math.isinf(value):
        raise ValueError("the number is out of range")
    return value


def _text(token: Token, prefix: str, prefixes: tuple[str, ...]) -> str:
    if token.kind is not TokenKind.TEXT or prefix not in prefixes:
        raise ValueError
    return token.text


def _days(text: str) -> int:
    if re.fullmatch(_DATE, text.strip(), re.ASCII) is None:
        raise ValueError("a date is 2026-01-31")
    return (date.fromisoformat(text.strip()) - _EPOCH_DAY).days


def _microseconds(text: str, with_zone: bool, needs_zone: bool) -> int:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError("a time is 2026-01-31 12:00:00, with Z, UTC or +01:00 behind it")
    zone = found[2]
    if zone is None and with_zone and needs_zone:
        raise ValueError("the time has no zone: put Z, UTC or an offset such as +01:00 behind it")
    if zone is not None and not with_zone:
        raise ValueError("the time has a zone, and the column's times have none")
    moment = datetime.fromisoformat(found[1])
    if zone not in (None, "Z", "UTC"):
        moment = datetime.fromisoformat(f"{moment.isoformat()}{zone}")
        try:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        except OverflowError:
            raise ValueError("the time is out of range") from None
    return (moment - _EPOCH) // _MICROSECOND


def _interval(text: str) -> int:
    found = _INTERVAL.fullmatch(text.strip())
    if found is None:
        raise ValueError("an interval is INTERVAL '1 02:03:04.5' DAY TO SECOND")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    total = timedelta(
        days=int(days), hours=int(hours), minutes=int(minutes), seconds=int(seconds)
    ) // _MICROSECOND + int((fraction or "").ljust(6, "0"))
    if total >= 1 << 63:
        raise ValueError("the interval is out of range")
    return -total if sign == "-" else total
