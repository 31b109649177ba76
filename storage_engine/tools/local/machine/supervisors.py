"""The supervisor of a machine's brokers: systemd where the units of its directory are installed,
else they are processes of their own, as those of `headrace up`.

There is no other rule: a unit that names a broker's `server.properties` of this directory, in the
folder of the system's or the user's units, makes its broker systemd's.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.broker_process import BrokerProcess, StopOutcome
from storage_engine.tools.local.machine.layout import MachineBroker, MachineLayout
from storage_engine.tools.local.machine.set_up import SYSTEM_UNITS, UNITS_FOLDER, user_units
from storage_engine.tools.local.machine.units import starts, unit_name


class Supervisor(Protocol):
    """Starts and stops the brokers of a machine."""

    name: str
    restarts: bool
    """Whether it starts a broker that died by itself."""

    def find(self, broker: MachineBroker) -> int | None:
        """The pid of the running broker."""
        ...

    def start(self, broker: MachineBroker) -> None:
        """Returns before the broker serves."""
        ...

    def stop(self, broker: MachineBroker, *, timeout_s: float) -> StopOutcome:
        """A controlled shutdown; kills the broker after `timeout_s`."""
        ...

    def last_words(self, broker: MachineBroker) -> str:
        """Why the broker ended, as far as it said so."""
        ...

    def recovery_line(self, broker: MachineBroker) -> str | None:
        """How far the recovery of its logs is; None when it is over or nothing tells."""
        ...


class OwnProcesses:
    """Brokers that are started by this command, and outlive it."""

    name = "processes"
    restarts = False

    def __init__(self, directory: Path, layout: MachineLayout) -> None:
        self._processes = {
            broker.id: BrokerProcess(directory, broker.entry(layout.host))
            for broker in layout.brokers
        }

    def find(self, broker: MachineBroker) -> int | None:
        return self._processes[broker.id].find()

    def start(self, broker: MachineBroker) -> None:
        self._processes[broker.id].start(cpu=broker.cpu)

    def stop(self, broker: MachineBroker, *, timeout_s: float) -> StopOutcome:
        return self._processes[broker.id].stop(timeout_s=timeout_s)

    def last_words(self, broker: MachineBroker) -> str:
        return self._processes[broker.id].last_words()

    def recovery_line(self, broker: MachineBroker) -> str | None:
        return self._processes[broker.id].recovery_line()


class SystemdUnits:
    """Brokers that systemd runs. One that was started otherwise is stopped otherwise, too."""

    name = "systemd"
    restarts = True

    def __init__(self, directory: Path, layout: MachineLayout, *, is_user: bool) -> None:
        self._own = OwnProcesses(directory, layout)
        self._is_user = is_user

    def find(self, broker: MachineBroker) -> int | None:
        return self._own.find(broker)

    def start(self, broker: MachineBroker) -> None:
        # A unit whose start failed before starts anew.
        self._systemctl("reset-failed", unit_name(broker), must=False)
        self._systemctl("start", unit_name(broker))

    def stop(self, broker: MachineBroker, *, timeout_s: float) -> StopOutcome:
        ran = self.find(broker) is not None
        # Also where it does not run: systemd may be about to start it again.
        self._systemctl("stop", unit_name(broker))
        left = self._own.stop(broker, timeout_s=timeout_s)
        if left is not StopOutcome.NOT_RUNNING:
            return left
        return StopOutcome.STOPPED if ran else StopOutcome.NOT_RUNNING

    def last_words(self, broker: MachineBroker) -> str:
        scope = "--user " if self._is_user else ""
        return f"see journalctl {scope}-u {unit_name(broker)}"

    def recovery_line(self, broker: MachineBroker) -> str | None:
        return None

    def _systemctl(self, *arguments: str, must: bool = True) -> None:
        program = shutil.which("systemctl")
        if program is None:
            raise CommandError(
                "the units of this machine are installed, but there is no systemctl to run them: "
                "remove the units, or install systemd"
            )
        command = [program, *(["--user"] if self._is_user else []), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if must and done.returncode:
            said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise CommandError(f"systemctl {' '.join(arguments)}: {said[0]}")


def supervisor_of(
    directory: Path,
    layout: MachineLayout,
    *,
    system_units: Path = SYSTEM_UNITS,
    of_user: Path | None = None,
) -> Supervisor:
    """CommandError when the units of some brokers are installed and those of others are not."""
    for folder, is_user in ((system_units, False), (of_user or user_units(), True)):
        missing = [
            broker for broker in layout.brokers if not _is_installed(folder, directory, broker)
        ]
        if len(missing) == len(layout.brokers):
            continue
        if missing:
            raise CommandError(
                f"systemd has no unit yet for broker {_ids(missing)}: install those in "
                f"{directory / UNITS_FOLDER}, as 'headrace machine init --dir {directory}' says"
            )
        return SystemdUnits(directory, layout, is_user=is_user)
    return OwnProcesses(directory, layout)


def _is_installed(folder: Path, directory: Path, broker: MachineBroker) -> bool:
    try:
        text = (folder / unit_name(broker)).read_text(encoding="utf-8")
    except OSError:
        return False
    return starts(text, f"{directory}/{broker.config}")


def _ids(brokers: Sequence[MachineBroker]) -> str:
    return ", ".join(str(broker.id) for broker in brokers)
