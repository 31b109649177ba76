"""The brokers of one machine: starts, stops and restarts them, and tells how they are.

Every method reads `machine.json` afresh, and asks the kernel who runs: a command that was killed
leaves nothing to clean up, and is run again. Commands that change something hold the directory's
lock.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.broker_process import StopOutcome
from storage_engine.tools.local.directory_lock import directory_lock
from storage_engine.tools.local.machine import machine_file
from storage_engine.tools.local.machine.host_facts import check_ports
from storage_engine.tools.local.machine.in_sync import named, partitions_behind
from storage_engine.tools.local.machine.layout import MachineBroker, MachineLayout
from storage_engine.tools.local.machine.supervisors import Supervisor, supervisor_of
from storage_engine.tools.local.serving import ask_metadata, wait_until_serving

START_TIMEOUT_S = 120.0
"""Without progress of a recovery."""
STOP_TIMEOUT_S = 60.0
"""For each broker, to hand its leaders over."""
IN_SYNC_TIMEOUT_S = 600.0
"""Without progress of the partitions that catch up."""

_POLL_S = 0.3
_LOOKS = 3
"""So often all partitions must be seen in sync: the first look may be at what was before."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """How a broker is."""

    id: int
    port: int
    cpu: int
    log_dirs: tuple[str, ...]
    pid: int | None
    serves: bool
    is_controller: bool
    behind: int | None
    """Partitions of it that are not in sync on all replicas; None where nobody tells."""


class Machine:
    """The brokers of one directory. `config`: how clients connect to a secured cluster."""

    def __init__(
        self,
        directory: Path,
        *,
        config: Path | None = None,
        progress: Progress = lambda line: None,
    ) -> None:
        self.directory = directory.absolute()
        self._config = config
        self._progress = progress

    @property
    def layout(self) -> MachineLayout:
        return machine_file.read(self.directory)

    @property
    def supervisor(self) -> Supervisor:
        return supervisor_of(self.directory, self.layout)

    def states(self) -> list[BrokerState]:
        layout, supervisor = self.layout, self.supervisor
        pids = {broker.id: supervisor.find(broker) for broker in layout.brokers}
        views = {
            broker.id: None if pids[broker.id] is None else self._ask(layout, broker)
            for broker in layout.brokers
        }
        any_view = next((view for view in views.values() if view is not None), None)
        return [
            BrokerState(
                id=broker.id,
                port=broker.port,
                cpu=broker.cpu,
                log_dirs=broker.log_dirs,
                pid=pids[broker.id],
                serves=views[broker.id] is not None,
                is_controller=any_view is not None and any_view.controller_id == broker.id,
                behind=None if any_view is None else len(partitions_behind(any_view, broker.id)),
            )
            for broker in layout.brokers
        ]

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> list[int]:
        """Start the brokers that do not run, and wait until all serve. Return the ids of those that
        were started."""
        machine_file.read(self.directory)
        with directory_lock(self.directory):
            layout, supervisor = self.layout, self.supervisor
            stopped = [each for each in layout.brokers if supervisor.find(each) is None]
            self._start(layout, supervisor, stopped)
            self._wait_until_serving(layout, supervisor, layout.brokers, timeout_s)
            return [broker.id for broker in stopped]

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> list[int]:
        """Stop the brokers one after the other, so that each hands its leaders over. Return the ids
        of those that ran."""
        machine_file.read(self.directory)
        with directory_lock(self.directory):
            layout, supervisor = self.layout, self.supervisor
            ran = []
            for broker in layout.brokers:
                outcome = supervisor.stop(broker, timeout_s=timeout_s)
                if outcome is not StopOutcome.NOT_RUNNING:
                    ran.append(broker.id)
                    self._progress(f"broker {broker.id} {outcome.value}")
            return ran

    def restart(
        self,
        *,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        start_timeout_s: float = START_TIMEOUT_S,
        in_sync_timeout_s: float = IN_SYNC_TIMEOUT_S,
    ) -> list[int]:
        """Restart one broker after another, the controller last; the next one only when all
        partitions of the one before are in sync again. A broker that does not run, or dies
        meanwhile, is started. Return the ids in their order."""
        machine_file.read(self.directory)
        with directory_lock(self.directory):
            layout, supervisor = self.layout, self.supervisor
            waiting = self._controller_last(layout, supervisor)
            restarted: list[int] = []
            revived: set[int] = set()
            try:
                while waiting:
                    broker = waiting[0]
                    self._wait_until_in_sync(
                        layout, supervisor, broker, in_sync_timeout_s, start_timeout_s, revived
                    )
                    if broker.id not in revived:
                        outcome = supervisor.stop(broker, timeout_s=stop_timeout_s)
                        self._progress(f"broker {broker.id} {outcome.value}")
                        self._start(layout, supervisor, [broker])
                        self._wait_until_serving(layout, supervisor, [broker], start_timeout_s)
                        self._wait_until_in_sync(
                            layout, supervisor, broker, in_sync_timeout_s, start_timeout_s, revived
                        )
                    restarted.append(waiting.pop(0).id)
            except CommandError as error:
                left = ", ".join(str(each.id) for each in waiting)
                raise CommandError(
                    f"{error}; not restarted: {left}; run the command again when that is mended"
                ) from None
            return restarted

    # --- below: the directory is locked

    def _controller_last(
        self, layout: MachineLayout, supervisor: Supervisor
    ) -> list[MachineBroker]:
        """In the order of restarting: first what does not run, at last the controller, so that it
        is elected once."""
        stopped = {each.id for each in layout.brokers if supervisor.find(each) is None}
        view = self._any_view(layout, layout.brokers, stopped)
        controller = -1 if view is None else view.controller_id
        return sorted(
            layout.brokers,
            key=lambda each: (each.id == controller, each.id not in stopped, each.id),
        )

    def _start(
        self, layout: MachineLayout, supervisor: Supervisor, brokers: Sequence[MachineBroker]
    ) -> None:
        check_ports(layout.host, (each.port for each in brokers), "see 'headrace machine status'")
        for broker in brokers:
            supervisor.start(broker)
            self._progress(f"broker {broker.id} starts on core {broker.cpu}")

    def _wait_until_serving(
        self,
        layout: MachineLayout,
        supervisor: Supervisor,
        brokers: Sequence[MachineBroker],
        timeout_s: float,
    ) -> None:
        """CommandError that says why a broker of these ended, or what is missing."""

        def check_alive() -> None:
            for broker in brokers:
                if not supervisor.restarts and supervisor.find(broker) is None:
                    raise self._ended(supervisor, broker)

        wait_until_serving(
            [broker.entry(layout.host) for broker in brokers],
            expected=[broker.id for broker in brokers],
            timeout_s=timeout_s,
            check_alive=check_alive,
            progress=self._progress,
            config=self._config,
            recovery_of=lambda entry: supervisor.recovery_line(layout.broker(entry.id)),
        )

    def _ended(self, supervisor: Supervisor, broker: MachineBroker) -> CommandError:
        return CommandError(
            f"broker {broker.id} ended while it started: {supervisor.last_words(broker)}"
        )

    def _wait_until_in_sync(
        self,
        layout: MachineLayout,
        supervisor: Supervisor,
        broker: MachineBroker,
        timeout_s: float,
        start_timeout_s: float,
        revived: set[int],
    ) -> None:
        """Starts brokers of this machine that have died meanwhile, each once."""
        deadline = time.monotonic() + timeout_s
        fewest: int | None = None
        looks = 0
        while looks < _LOOKS:
            self._revive(layout, supervisor, revived, start_timeout_s)
            view = self._any_view(layout, (broker, *layout.brokers), ())
            behind = None if view is None else partitions_behind(view, broker.id)
            if behind == []:
                looks += 1
                time.sleep(_POLL_S)
                continue
            looks = 0
            if behind is not None and (fewest is None or len(behind) < fewest):
                fewest = len(behind)
                deadline = time.monotonic() + timeout_s
                self._progress(
                    f"broker {broker.id}: {fewest} partitions are not in sync on all replicas yet"
                )
            if time.monotonic() > deadline:
                what = "no broker answers" if behind is None else f"behind: {named(behind)}"
                raise CommandError(
                    f"broker {broker.id}: not all of its partitions are in sync after "
                    f"{timeout_s:.0f} s ({what})"
                )
            time.sleep(_POLL_S)

    def _revive(
        self,
        layout: MachineLayout,
        supervisor: Supervisor,
        revived: set[int],
        start_timeout_s: float,
    ) -> None:
        dead = [each for each in layout.brokers if supervisor.find(each) is None]
        if supervisor.restarts or not dead:
            return
        for broker in dead:
            if broker.id in revived:
                raise CommandError(
                    f"broker {broker.id} ended once more: {supervisor.last_words(broker)}"
                )
            self._progress(f"broker {broker.id} does not run")
        revived.update(broker.id for broker in dead)
        self._start(layout, supervisor, dead)
        self._wait_until_serving(layout, supervisor, dead, start_timeout_s)

    def _any_view(
        self,
        layout: MachineLayout,
        brokers: Sequence[MachineBroker],
        without: Collection[int],
    ) -> ClusterMetadata | None:
        """The answer of the first broker that gives one, about all topics."""
        for broker in brokers:
            if broker.id not in without:
                view = self._ask(layout, broker)
                if view is not None:
                    return view
        return None

    def _ask(self, layout: MachineLayout, broker: MachineBroker) -> ClusterMetadata | None:
        try:
            return ask_metadata(broker.entry(layout.host), topics=None, config=self._config)
        except HeadraceError:
            return None
