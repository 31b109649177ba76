"""`headrace size`: a table, a document, and mistakes in one line."""

import json

import pytest

from storage_engine.tools.cli import main

LOAD = ["size", "--records-per-second", "200k", "--record-bytes", "500", "--partitions", "300"]
KEPT = ["--retention-hours", "72"]


def test_the_table_says_what_the_document_says(capsys):
    assert main([*LOAD, *KEPT]) == 0
    table = capsys.readouterr().out
    assert main([*LOAD, *KEPT, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["written_bytes_per_s"] == 1e8
    assert f"{found['brokers']}, each with {found['replicas_of_broker']} replicas" in table
    assert "written                              100 MB/s" in table


def test_each_option_counts(capsys):
    options = {
        "--readers": "9", "--batch-bytes": "1k", "--replication-factor": "2", "--machines": "5",
        "--disk-bytes": "1T", "--busy": "0.9", "--full": "0.2",
    }  # fmt: skip
    seen = set()
    for given in ([], ["--tls"], *map(list, options.items())):
        assert main([*LOAD, *KEPT, "--json", *given]) == 0
        seen.add(capsys.readouterr().out)
    assert len(seen) == 2 + len(options)


@pytest.mark.parametrize("text", ["0", "-1", "many", "1K", "nan", "1e9"])
def test_what_is_no_number_is_refused(text, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*LOAD, "--retention-hours", text])
    assert ended.value.code == 2
    assert "argument --retention-hours" in capsys.readouterr().err


def test_too_few_machines_are_wrong_usage(capsys):
    assert main([*LOAD, *KEPT, "--machines", "2"]) == 2
    assert "3 replicas need as many machines" in capsys.readouterr().err
