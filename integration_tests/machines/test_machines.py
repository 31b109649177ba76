"""The ground of tests of failover between machines: machines that are apart, and their faults."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.machines.machines import Cut, Machine
from integration_tests.machines.on_machines import machines, needs_loss
from integration_tests.support.cluster_support import wait_until

PORT = 8000
SERVER = f"""
import socket
listening = socket.create_server(("", {PORT}))
while True:
    taken, _ = listening.accept()
    taken.sendall(b"here")
    taken.close()
"""


@pytest.fixture
def two(tmp_path):
    """Two machines with a server on each."""
    with machines() as network:
        made = [network.machine(1), network.machine(2)]
        for machine in made:
            serve(machine, tmp_path)
        yield made


def serve(machine: Machine, folder: Path) -> int:
    started = machine.start(
        [sys.executable, "-c", SERVER], output=folder / f"{machine.number}", folder=folder
    )
    wait_until(lambda: answers(machine), "the server answers")
    return started.pid


def answers(machine: Machine) -> bool:
    try:
        with socket.create_connection((machine.address, PORT), timeout=0.5) as asked:
            return asked.recv(4) == b"here"
    except OSError:
        return False


FAULTS: dict[str, tuple[Callable[[Machine], None], Callable[[Machine], None]]] = {
    "unplugged": (Machine.unplug, Machine.plug_in),
    "unheard": (lambda machine: machine.cut(Cut.SENT), Machine.mend),
    "deaf": (lambda machine: machine.cut(Cut.RECEIVED), Machine.mend),
    "frozen": (Machine.freeze, Machine.thaw),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_of_one_machine_and_ends(two, name):
    begin, end = FAULTS[name]
    begin(two[0])
    assert not answers(two[0])
    assert answers(two[1])
    end(two[0])
    wait_until(lambda: answers(two[0]), f"it answers when it is no longer {name}")


def test_packets_are_lost_and_then_no_longer(two):
    needs_loss()
    two[0].lose(99)
    assert not answers(two[0])
    two[0].mend()
    wait_until(lambda: answers(two[0]), "it answers")


def test_a_machine_sees_no_process_of_another_and_loses_all_its_own_with_its_power(two, tmp_path):
    ours = set(two[0].pids())
    assert len(ours) == 1
    assert not ours & set(two[1].pids())
    two[0].power_off()
    assert two[0].pids() == []
    assert not answers(two[0])
    assert answers(two[1])


def test_nothing_outlives_the_process_that_made_the_machines():
    program = (
        "import time\n"
        "from pathlib import Path\n"
        "from benchmarks.machines.machines import Network\n"
        "network = Network()\n"
        "network.machine(1).start(['sleep', '1000'], output=Path('/dev/null'), folder=Path('/'))\n"
        "print(network._device, *network._machines[1].pids(), flush=True)\n"
        "time.sleep(1000)\n"
    )
    with machines():
        maker = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
    assert maker.stdout is not None
    device, pid = maker.stdout.readline().decode().split()
    assert Path("/sys/class/net", device).exists()
    maker.send_signal(signal.SIGKILL)
    maker.communicate()
    wait_until(lambda: not Path("/sys/class/net", device).exists(), "its device is gone")
    wait_until(lambda: not Path("/proc", pid).exists(), "its process is gone")
