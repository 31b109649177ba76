"""The figures of a process: turns of its loop, file systems of its log dirs, certificates."""

from types import SimpleNamespace

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.metrics import process_figures
from storage_engine.broker.metrics.exposition import Samples
from storage_engine.broker.metrics.process_figures import (
    LOOK_MS,
    PERIOD_MS,
    PERIODS,
    CertificateFigures,
    DiskFigures,
    LoopFigures,
)

MS = 1_000_000


def lines(figures) -> list[str]:
    samples = Samples()
    for _ in figures.read(samples):
        pass
    return "".join(samples.text(open_metrics=False)).splitlines()


class Process:
    """A loop whose turns are as long as the test says, in a thread that is as busy as it says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = SimulatedLoop()
        self.late_ms = 0
        self.busy = 0.0
        self.server = SimpleNamespace(longest_turn_ns=0, turns=7)
        clock = SimpleNamespace(
            perf_counter_ns=lambda: (self.loop.now_ms + self.late_ms) * MS,
            thread_time_ns=lambda: int(self.busy * self.loop.now_ms * MS),
        )
        monkeypatch.setattr(process_figures, "time", clock)
        self.figures = LoopFigures(self.server, self.loop, self.loop)
        self.figures.start()


@pytest.fixture
def process(monkeypatch) -> Process:
    return Process(monkeypatch)


@pytest.mark.parametrize("is_of_a_request", [True, False])
def test_the_longest_turn_is_told_for_about_a_minute(process, is_of_a_request):
    process.loop.run_for(1_000)
    assert process.figures.longest_s == 0
    if is_of_a_request:
        process.server.longest_turn_ns = 30 * MS
    else:
        process.late_ms += 30
    process.loop.run_for(LOOK_MS)
    assert process.figures.longest_s == pytest.approx(0.03)
    process.loop.run_for((PERIODS - 1) * PERIOD_MS)
    assert process.figures.longest_s == pytest.approx(0.03)
    process.loop.run_for(PERIOD_MS + 2 * LOOK_MS)
    assert process.figures.longest_s == 0


def test_a_turn_of_a_request_is_told_before_the_next_look(process):
    process.server.longest_turn_ns = 30 * MS
    assert "headrace_loop_longest_turn_seconds 0.03" in lines(process.figures)


def test_a_busy_thread_is_told_as_the_part_of_the_time_that_it_works(process):
    process.busy = 0.25
    process.loop.run_for(PERIOD_MS + LOOK_MS)
    told = lines(process.figures)
    assert "headrace_loop_busy_ratio 0.25" in told
    assert "kafka_network_socketserver_networkprocessoravgidle_percent 0.75" in told
    assert "headrace_loop_turns_total 7" in told


def test_a_log_dir_that_can_not_be_read_is_left_out(tmp_path):
    loop = SimulatedLoop()
    dirs = SimpleNamespace(
        working_paths=[tmp_path, tmp_path / "gone"],
        working=[SimpleNamespace(room=SimpleNamespace(is_full=True), path=tmp_path)],
        unusable_count=1,
    )
    figures = DiskFigures(dirs, loop, loop)

    def sizes() -> int:
        return sum("_bytes{" in line for line in lines(figures))

    figures.start()
    assert sizes() == 0, "not read yet"
    loop.run_for(100)
    told = lines(figures)
    assert sizes() == 2, "all and free of the first"
    assert any(line.startswith("headrace_log_dir_full{") and line.endswith(" 1") for line in told)
    assert "kafka_log_logmanager_offlinelogdirectorycount 1" in told
    dirs.working_paths = []
    loop.run_for(PERIOD_MS + 100)
    assert sizes() == 0, "read again"


def test_a_certificate_that_has_ended_has_less_than_no_days():
    day_ms = 86_400_000
    ends_ms = {"CLIENTS": 2 * day_ms, "BROKERS": day_ms // 2}
    figures = CertificateFigures(lambda: ends_ms, SimpleNamespace(wall_ms=lambda: day_ms))
    told = [line.rpartition(" ")[2] for line in lines(figures) if line.startswith("headrace_cert")]
    assert told == ["1.0", "-0.5"]
