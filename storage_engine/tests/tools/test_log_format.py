"""What clients sent, what stands in ZooKeeper and on disks can't forge a line of a log."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import make_batch
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.tools.commands.broker import set_up_logging
from storage_engine.tools.table import format_table, report_line, write_line

FORGED = "2025-01-01 00:00:00,000 ERROR headrace.state_change: deleted partition=payments-0"
EVIL = f"x\n{FORGED}\u2028{FORGED}\r\x1b[2K\u202e"

BEGINNING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ \S+: ")


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """As they were, afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers, root.level = before


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    set_up_logging(tmp_path / "broker.log", file_bytes=1 << 20, level="info")
    return tmp_path / "broker.log"


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def test_a_topic_name_of_a_client_is_one_line_of_the_brokers_log(log_file, tmp_path):
    """One with acks that do not exist: the refusal names the topic."""
    cluster = SimulatedCluster(tmp_path / "brokers", 1)
    request = ProduceRequest(None, 5, 1000, [ProducePartition(EVIL, 0, make_batch())])
    cluster.answer(cluster.ask(1, PRODUCE, 8, request))
    cluster.close()
    lines = lines_of(log_file)
    assert any("payments-0" in line for line in lines)
    assert all(BEGINNING.match(line) for line in lines)
    assert not any(line.startswith(FORGED) for line in lines)
    assert all(line.isprintable() for line in lines)


def test_a_trace_keeps_its_lines_and_none_of_them_passes_for_a_message(log_file):
    try:
        raise ValueError(EVIL)
    except ValueError:
        logging.getLogger("some.part").exception("failed on %s", EVIL)
    first, *trace = lines_of(log_file)
    assert BEGINNING.match(first)
    assert trace[0] == "  Traceback (most recent call last):"
    assert len(trace) > 2
    assert all(line.startswith("  ") and line.isprintable() for line in trace)
    assert any(line.lstrip().startswith("raise ValueError") for line in trace)


def test_tools_show_a_name_on_one_line(capsys):
    table = format_table(["name", "replicas"], [[EVIL, ["1\n2", "3"]]])
    assert len(table.splitlines()) == 2
    write_line(f"{EVIL.replace(chr(10), '')}\nsecond")
    report_line(EVIL)
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert len(shown.err.splitlines()) == 1
    assert all(line.isprintable() for line in (shown.out + shown.err).split("\n"))
