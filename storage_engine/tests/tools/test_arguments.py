"""Arguments that several commands share: what is taken, and what a refusal says."""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_engine.core.typed.bounded_json import MAX_SCHEMA_BYTES
from storage_engine.tools.arguments import (
    column_names,
    natural_number,
    pairs,
    positive_integer,
    positive_seconds,
    schema_text,
    time_ms,
)
from storage_engine.tools.errors import UsageError


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock is nine hours ahead of UTC."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1500", 1500),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1970-01-01T00:00:00.250Z", 250),
        ("1970-01-02", 86_400_000),
    ],
)
def test_a_time_is_milliseconds_or_iso_in_utc_unless_it_has_a_zone(text: str, expected: int):
    assert time_ms(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "\u0661", "2026-13-01"])
def test_another_time_is_refused_with_both_forms(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="2026-01-31T12:00:00 or milliseconds"):
        time_ms(text)


@pytest.mark.parametrize(
    ("kind", "good", "wrong"),
    [
        (positive_integer, "1", "0"),
        (natural_number, "0", "-1"),
        (positive_seconds, "0.5", "0"),
        (positive_seconds, "1", "nan"),
        (positive_seconds, "1", "inf"),
    ],
)
def test_a_number_out_of_its_range_is_named(kind, good: str, wrong: str) -> None:
    assert kind(good) == float(good)
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{wrong}' is not a"):
        kind(wrong)


def test_columns_are_parted_by_commas_around_which_there_may_be_spaces() -> None:
    assert column_names("a, b ,c") == ("a", "b", "c")


def test_the_last_of_equal_settings_counts_and_a_value_may_have_an_equals_sign() -> None:
    assert pairs(["a=1", "b=x=y", "a=", "c=3"]) == {"a": "", "b": "x=y", "c": "3"}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_a_setting_of_another_form_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match=f"--conf '{text}' is not of the form KEY=VALUE"):
        pairs([text])


def test_a_schema_is_a_text_unless_a_file_has_that_name(tmp_path: Path) -> None:
    file = tmp_path / "schema.ddl"
    file.write_text("id BIGINT")
    assert schema_text(str(file)) == "id BIGINT"
    for text in ("id BIGINT NOT NULL", '{"type": "record"}', "x" * 5000):
        assert schema_text(text) == text


@pytest.mark.parametrize("name", ["none.avsc", "/none", "folder/none.json"])
def test_a_text_that_can_only_be_a_file_must_be_there(name: str) -> None:
    with pytest.raises(UsageError, match=f"--schema {name}: there is no such file"):
        schema_text(name)


@pytest.mark.parametrize("content", [b"\xff", b"x" * MAX_SCHEMA_BYTES + "ä".encode()])
def test_a_schema_that_is_no_short_text_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "schema.ddl"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="is no text in UTF-8 of at most"):
        schema_text(str(file))
