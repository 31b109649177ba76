"""In which order a machine's brokers are stopped and started, and what is waited for between."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.errors import HeadraceError
from storage_engine.tests.tools.local.machine.made_layout import NEW, laid_out
from storage_engine.tests.tools.local.machine.test_in_sync import view_of
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.broker_process import StopOutcome
from storage_engine.tools.local.cluster_file import BrokerEntry
from storage_engine.tools.local.machine import machine, machine_file
from storage_engine.tools.local.machine.layout import MachineBroker
from storage_engine.tools.local.machine.machine import Machine

LAYOUT = laid_out(replace(NEW, cores=3))
IDS = [broker.id for broker in LAYOUT.brokers]
WHOLE = [1000, 1001, 1002]


class ScriptedBrokers:
    """A supervisor of brokers whose partition has as many replicas in sync as are told."""

    name = "script"
    restarts = False

    def __init__(self) -> None:
        self.running = dict.fromkeys(IDS, 1)
        self.steps: list[str] = []
        self.controller = 1001
        self.behind_for = 0
        """So many looks, after each start."""
        self.on_look: Callable[[], None] = lambda: None
        self.never_starts: set[int] = set()
        self._left = 0

    def find(self, broker: MachineBroker) -> int | None:
        return self.running.get(broker.id)

    def start(self, broker: MachineBroker) -> None:
        self.steps.append(f"start {broker.id}")
        self._left = self.behind_for
        if broker.id not in self.never_starts:
            self.running[broker.id] = 1

    def stop(self, broker: MachineBroker, *, timeout_s: float) -> StopOutcome:
        self.steps.append(f"stop {broker.id}")
        ran = self.running.pop(broker.id, None)
        return StopOutcome.NOT_RUNNING if ran is None else StopOutcome.STOPPED

    def last_words(self, broker: MachineBroker) -> str:
        return "no space"

    def recovery_line(self, broker: MachineBroker) -> str | None:
        return None

    def ask(self, entry: BrokerEntry, **_options: object) -> ClusterMetadata:
        if entry.id not in self.running:
            raise CommandError("refused")
        self.on_look()
        isr = WHOLE[:2] if self._left > 0 else WHOLE
        if self._left > 0:
            self.steps.append("behind")
            self._left -= 1
        return replace(view_of((WHOLE, isr)), controller_id=self.controller)


@pytest.fixture
def brokers(monkeypatch) -> ScriptedBrokers:
    script = ScriptedBrokers()

    def serve(
        entries: Sequence[BrokerEntry], *, check_alive: Callable[[], None], **_options: object
    ) -> None:
        check_alive()
        script.steps += [f"serves {entry.id}" for entry in entries]

    monkeypatch.setattr(machine, "supervisor_of", lambda *_: script)
    monkeypatch.setattr(machine, "ask_metadata", script.ask)
    monkeypatch.setattr(machine, "wait_until_serving", serve)
    monkeypatch.setattr(machine, "check_ports", lambda *_: None)
    monkeypatch.setattr(machine, "_POLL_S", 0)
    return script


@pytest.fixture
def cluster(tmp_path: Path, brokers: ScriptedBrokers) -> Machine:
    machine_file.write(tmp_path, LAYOUT)
    return Machine(tmp_path)


def test_only_those_that_do_not_run_are_started(cluster, brokers):
    del brokers.running[1001]
    assert cluster.start() == [1001]
    assert [step for step in brokers.steps if step.startswith("start")] == ["start 1001"]
    assert cluster.start() == []


def test_one_after_another_is_restarted_and_the_controller_last(cluster, brokers):
    assert cluster.restart() == [1000, 1002, 1001]
    assert brokers.steps == [
        step
        for each in (1000, 1002, 1001)
        for step in (f"stop {each}", f"start {each}", f"serves {each}")
    ]


def test_the_next_one_waits_until_all_are_in_sync_again(cluster, brokers):
    brokers.behind_for = 4
    cluster.restart()
    after_start = brokers.steps[brokers.steps.index("serves 1000") :]
    assert after_start[:6] == ["serves 1000", *["behind"] * 4, "stop 1002"]


def test_one_look_is_not_enough(cluster, brokers):
    """It may be at what was before."""
    looks = []
    brokers.on_look = lambda: looks.append(len(brokers.steps))
    cluster.restart()
    assert looks.count(3) >= 6, "three after one broker's start, three before the next one's stop"


def test_what_does_not_run_is_started_and_not_stopped_again(cluster, brokers):
    del brokers.running[1002]
    assert cluster.restart() == [1002, 1000, 1001]
    assert brokers.steps[:3] == ["start 1002", "serves 1002", "stop 1000"]
    assert "stop 1002" not in brokers.steps


def test_a_broker_that_dies_meanwhile_is_started_once(cluster, brokers):
    def dies() -> None:
        if brokers.steps[-1:] == ["serves 1000"]:
            brokers.running.pop(1002, None)

    brokers.on_look = dies
    assert sorted(cluster.restart()) == IDS
    assert brokers.steps.count("start 1002") == 1
    assert "stop 1002" not in brokers.steps


def test_a_broker_that_does_not_come_back_ends_it(cluster, brokers):
    brokers.never_starts.add(1000)
    with pytest.raises(HeadraceError) as caught:
        cluster.restart()
    assert str(caught.value) == (
        "broker 1000 ended while it started: no space; not restarted: 1000, 1002, 1001; run the "
        "command again when that is mended"
    )
    assert brokers.steps == ["stop 1000", "start 1000"]


def test_replicas_that_never_catch_up_end_it(cluster, brokers):
    brokers.behind_for = 1_000_000
    with pytest.raises(HeadraceError) as caught:
        cluster.restart(in_sync_timeout_s=0.05)
    assert "broker 1000: not all of its partitions are in sync" in str(caught.value)
    assert "(behind: t-0)" in str(caught.value)
    assert "stop 1002" not in brokers.steps


def test_it_does_not_begin_while_a_replica_is_behind(cluster, brokers):
    brokers._left = 1_000_000
    with pytest.raises(HeadraceError, match="not all of its partitions are in sync"):
        cluster.restart(in_sync_timeout_s=0.05)
    assert not [step for step in brokers.steps if step.startswith("stop")]


def test_states_tell_who_serves_and_what_is_behind(cluster, brokers):
    del brokers.running[1002]
    states = cluster.states()
    assert [(each.id, each.serves, each.behind) for each in states] == [
        (1000, True, 0),
        (1001, True, 0),
        (1002, False, 0),
    ]
    assert [each.id for each in states if each.is_controller] == [1001]
    brokers.running.clear()
    assert {each.behind for each in cluster.states()} == {None}


def test_a_machine_that_was_never_laid_out_is_told(tmp_path):
    for action in (Machine(tmp_path).start, Machine(tmp_path).stop, Machine(tmp_path).restart):
        with pytest.raises(HeadraceError, match="there is no machine in"):
            action()
    assert list(tmp_path.iterdir()) == []
