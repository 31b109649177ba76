"""Arguments that several commands share.

The same argument has the same name, meaning and check everywhere.
"""

import argparse
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from storage_engine.core.typed.bounded_json import MAX_SCHEMA_BYTES
from storage_engine.tools.errors import UsageError

_FILE_NAME = re.compile(r"[^\s{\[]\S*(/\S*|\.(avsc|avro|json|ddl|sql|txt))|/\S*")
"""Texts that can only be meant as a file: no column is defined without a space."""

BOOTSTRAP_HELP = (
    "brokers to connect to first, as HOST:PORT[,HOST:PORT…]; the command fails when none of them "
    "answers within 10 s"
)


CONFIG_HELP = (
    "properties file with the settings of the connection, such as security.protocol, "
    "sasl.mechanism, sasl.username, sasl.password and ssl.truststore.location"
)


def add_directory(parser: argparse.ArgumentParser) -> None:
    """`--dir DIR`: the directory of a local cluster."""
    parser.add_argument(
        "--dir", required=True, type=Path, metavar="DIR", help="directory of the local cluster"
    )


def add_broker_id(parser: argparse.ArgumentParser) -> None:
    """`ID`: a broker of a local cluster."""
    parser.add_argument(
        "id", type=int, metavar="ID", help="broker id, as 'headrace status' shows it"
    )


def add_bootstrap_server(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """`--bootstrap-server HOST:PORT`, and `--command-config FILE`."""
    parser.add_argument(
        "--bootstrap-server", required=required, metavar="HOST:PORT", help=BOOTSTRAP_HELP
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help=f"{CONFIG_HELP} (default: a connection without TLS and without a log-in)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON instead of a table"
    )


def add_columns(parser: argparse.ArgumentParser) -> None:
    """`--columns A,B` and `--where CONDITION`, of typed topics."""
    parser.add_argument(
        "--columns",
        type=column_names,
        metavar="A,B",
        help="columns of a typed topic to read; the others are not sent (default: all)",
    )
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        help="read only the rows of a typed topic that match: comparisons of columns with values, "
        "joined by AND, as in \"fare > 10 AND tag IN ('a', 'b')\"",
    )


def column_names(text: str) -> tuple[str, ...]:
    """The names between the commas of `--columns`."""
    return tuple(name.strip() for name in text.split(","))


def add_schema(parser: argparse.ArgumentParser, meaning: str) -> None:
    """`--schema TEXT|FILE`, which `schema_text` reads."""
    parser.add_argument(
        "--schema",
        metavar="TEXT|FILE",
        help=f"{meaning}; as Spark's DDL ('id BIGINT NOT NULL, fare DOUBLE'), an Avro record, a "
        "JSON Schema or the JSON of a Spark schema, or a file with one of these",
    )


def schema_text(given: str) -> str:
    """The text of `--schema`, read from the file where one has that name."""
    path = Path(given)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):
        # Too long for a name.
        is_file = False
    if not is_file:
        if _FILE_NAME.fullmatch(given):
            raise UsageError(f"--schema {given}: there is no such file")
        return given
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCHEMA_BYTES + 1)
        return data.decode()
    except OSError as error:
        raise UsageError(f"--schema {given}: the file can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        # Also for a character that the limit cuts.
        raise UsageError(
            f"--schema {given}: is no text in UTF-8 of at most {MAX_SCHEMA_BYTES // 1024} KiB"
        ) from None


def add_conf(parser: argparse.ArgumentParser, meaning: str) -> None:
    """`--conf KEY=VALUE`, several times."""
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"{meaning}; may be given several times",
    )


def pairs(conf: Iterable[str]) -> dict[str, str]:
    """Return the settings of `--conf`; UsageError for a text of another form."""
    found = {}
    for text in conf:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--conf '{text}' is not of the form KEY=VALUE")
        found[key] = value
    return found


def add_timeout(parser: argparse.ArgumentParser, default_s: float, meaning: str) -> None:
    """`--timeout SECONDS`."""
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=default_s,
        metavar="SECONDS",
        help=f"{meaning} (default {default_s:.0f})",
    )


def positive_seconds(text: str) -> float:
    """A number of seconds greater than 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds greater than 0")
    return value


def positive_integer(text: str) -> int:
    """A whole number from 1 on."""
    return _whole_number(text, 1, "greater than 0")


def natural_number(text: str) -> int:
    """A whole number from 0 on."""
    return _whole_number(text, 0, "of 0 or more")


def _whole_number(text: str, least: int, bounds: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number {bounds}")
    return value


TIME_HELP = (
    "TIME is like 2026-01-31T12:00:00 (in UTC unless it has a zone), or milliseconds since 1970"
)


def time_ms(text: str) -> int:
    """ISO 8601 or milliseconds, as milliseconds since 1970."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a time: give 2026-01-31T12:00:00 or milliseconds since 1970"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_configs(texts: list[str]) -> dict[str, str]:
    """`KEY=VALUE` of `--config`; UsageError for anything else, and for a key given twice."""
    result: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UsageError(f"'--config {text}' is not of the form KEY=VALUE")
        if key in result:
            raise UsageError(f"'--config {key}=…' is given twice")
        result[key] = value.strip()
    return result


def add_config(parser: argparse.ArgumentParser, meaning: str) -> None:
    """`--config KEY=VALUE`, for `parse_configs`."""
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help=f"{meaning}; repeatable"
    )
