"""`headrace schemas` against no registry: what is wrong gets one line."""

import pytest

from storage_engine.tools import registry_address
from storage_engine.tools.cli import main

AWAY = ("--registry", "http://127.0.0.1:1")


def refusal(capsys, *arguments: object, status: int) -> str:
    assert main(["schemas", *map(str, arguments)]) == status
    errors = capsys.readouterr().err
    assert errors.startswith("headrace: ")
    assert errors.count("\n") == 1
    return errors


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("show", *AWAY), 2, "SUBJECT or --id"),
        (("show", "a", "--id", "1", *AWAY), 2, "SUBJECT or --id"),
        (("list", "--registry", "ftp://x"), 2, "--registry 'ftp://x'"),
        (("list", "--cluster", "/nowhere"), 1, "headrace up"),
        (("register", "a", "/nowhere", *AWAY), 1, "/nowhere: No such file"),
    ],
)
def test_wrong_arguments_are_told(capsys, arguments, status, words) -> None:
    assert words in refusal(capsys, *arguments, status=status)


def test_a_reference_has_a_name_a_subject_and_a_version(capsys, tmp_path) -> None:
    file = tmp_path / "schema.avsc"
    file.write_text('"int"')
    for text in ("x", "n=s", "n=s:v", "=s:1", "n=:1"):
        arguments = ("register", "a", file, "--reference", text, *AWAY)
        assert "NAME=SUBJECT:VERSION" in refusal(capsys, *arguments, status=2)


def test_a_file_that_is_no_text_is_told(capsys, tmp_path) -> None:
    file = tmp_path / "schema.avsc"
    file.write_bytes(b"\xff")
    assert "no text in UTF-8" in refusal(capsys, "check", "a", file, *AWAY, status=1)


def test_a_registry_that_is_away_is_told(capsys, monkeypatch) -> None:
    monkeypatch.setattr(registry_address, "PATIENCE_MS", 100)
    assert "127.0.0.1:1" in refusal(capsys, "list", *AWAY, status=1)
