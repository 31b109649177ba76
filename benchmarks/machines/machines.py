"""Machines on one machine: each has processes and a network address of its own, and a cable that
can be pulled.

    here ──────────┐
                   ├─ a bridge, in a namespace of its own
    machine 1 ─────┤    each cable is a pair of virtual network devices
    machine 2 ─────┘    each machine is a namespace of processes and one of the network

Nobody on one machine sees the processes of another. All of it goes when this process ends, however
it does: the first process of each namespace reads a pipe of ours, and no namespace or device
outlives its processes.

It needs root, Linux, and the commands of iproute2 and util-linux; lost packets need nftables.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path

from storage_engine.tools.errors import CommandError

_NETWORKS = 512
"""The networks in 198.18.0.0/15, which RFC 2544 sets aside for measurements."""
_FIRST = "cat"
"""The first process of a machine: it ends with our pipe."""
_COMMANDS = ("ip", "tc", "unshare", "nsenter")
_PATIENCE_S = 10.0
_KILL_S = 60.0


class Cut(Enum):
    """The packets of a machine that are dropped."""

    SENT = "what it sends"
    RECEIVED = "what is sent to it"


def why_not() -> str:
    """Return why there can be no machines here, in one line; empty where there can."""
    if os.geteuid() != 0:
        return "machines in namespaces need root"
    if missing := [name for name in _COMMANDS if shutil.which(name) is None]:
        return (
            f"machines in namespaces need the commands {', '.join(missing)}: iproute2, util-linux"
        )
    in_namespaces = ["unshare", "--net", "--pid", "--fork", "--mount-proc"]
    command = [*in_namespaces, "ip", "link", "add", "type", "veth"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"this system gives no namespaces: {tried.stderr.strip()[-200:]}"
    return ""


def why_no_loss() -> str:
    """Return why no packets can be lost here; empty where they can."""
    return "" if shutil.which("nft") else "lost packets need nft, of Debian's package nftables"


class MachineProcess:
    """A process on a machine. `pid` is its number here."""

    def __init__(self, entered: "subprocess.Popen[bytes]") -> None:
        self._entered = entered
        """It waits for the process and ends as the process does."""
        self.pid = _child_of(entered)

    def poll(self) -> int | None:
        """Return the status as `subprocess.Popen` does; None while it runs."""
        return self._entered.poll()

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def wait(self, timeout_s: float = _KILL_S) -> int:
        # What waits for it stops when it is stopped, and so would never hear of its end.
        self._entered.send_signal(signal.SIGCONT)
        return self._entered.wait(timeout_s)


class Machine:
    """One machine; `Network.machine` makes it."""

    def __init__(self, number: int, address: str, first: "subprocess.Popen[bytes]", switch: int):
        self.number = number
        self.address = address
        self._started_first = first
        self._first = _child_of(first)
        self._switch = switch
        self._port = f"port{number}"
        """The bridge's end of the cable."""
        self._processes: list[MachineProcess] = []
        _in_network(switch, "ip", "link", "add", self._port, "type", "veth", "peer", "name", "eth0",
                    "netns", str(self._first))  # fmt: skip
        _in_network(switch, "ip", "link", "set", self._port, "master", "bridge", "up")
        self._run("ip", "link", "set", "lo", "up")
        self._run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        self._run("ip", "link", "set", "eth0", "up")

    # -- processes -----------------------------------------------------------------------------

    def start(
        self,
        command: Sequence[str | Path],
        *,
        output: Path,
        folder: Path,
    ) -> MachineProcess:
        """Start a process whose output is appended to a file."""
        enter = [
            "nsenter",
            f"--target={self._first}",
            "--net",
            "--pid",
            "--mount",
            f"--wd={folder}",
        ]
        with output.open("ab") as sink:
            entered = subprocess.Popen(
                [*enter, "--", *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        process = MachineProcess(entered)
        self._processes.append(process)
        return process

    def pids(self) -> list[int]:
        """Return the numbers, here, of all its running processes but the first."""
        try:
            ours = _namespace(self._first, "pid")
        except OSError:
            return []
        found = []
        for pid in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
            with contextlib.suppress(OSError):
                if pid != self._first and _runs_in(pid, ours):
                    found.append(pid)
        return found

    def freeze(self) -> None:
        """Stop all that runs; the kernel still answers packets."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, signum: signal.Signals) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def power_off(self) -> None:
        """Pull the cable, then end everything at once: nobody hears a last word."""
        self.unplug()
        self._started_first.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first, signal.SIGKILL)
        self._started_first.communicate()
        for process in self._processes:
            process.wait()
        with contextlib.suppress(CommandError):
            # The kernel removes it with the machine, but later.
            _in_network(self._switch, "ip", "link", "delete", self._port)

    # -- the cable -----------------------------------------------------------------------------

    def unplug(self) -> None:
        _in_network(self._switch, "ip", "link", "set", self._port, "down")

    def plug_in(self) -> None:
        _in_network(self._switch, "ip", "link", "set", self._port, "up")

    def cut(self, what: Cut) -> None:
        """Drop every packet in one direction, without a word to anybody."""
        self._queue(what, "blackhole")

    def slow_down(self, rate: str) -> None:
        """Let so much through in both directions, as `tc` writes it (`2mbit`): up to half a second
        of packets waits, and what comes then is lost."""
        for each in Cut:
            self._queue(each, "tbf", "rate", rate, "burst", "16kb", "latency", "500ms")

    def lose(self, percent: int) -> None:
        """Lose that share of the packets, below 100, in each direction, at random."""
        for enter, device in ((self._first, "eth0"), (self._switch, self._port)):
            hook = f'type filter hook ingress device "{device}" priority 0'
            lost = f"numgen random mod 1000 < {10 * percent} drop"
            rules = f"table netdev {device} {{\nchain lost {{\n{hook}\n{lost}\n}}\n}}"
            _in_network(enter, "nft", rules)

    def mend(self) -> None:
        """Undo what `cut`, `slow_down` and `lose` did."""
        for each in Cut:
            with contextlib.suppress(CommandError):
                self._tc(each, "del")
        for enter, device in ((self._first, "eth0"), (self._switch, self._port)):
            with contextlib.suppress(CommandError):
                _in_network(enter, "nft", f"delete table netdev {device}")

    def _queue(self, what: Cut, *kind: str) -> None:
        """A device drops or holds what leaves by it: at the machine's end of the cable what the
        machine sends."""
        self._tc(what, "replace", *kind)

    def _tc(self, what: Cut, verb: str, *kind: str) -> None:
        sent = what is Cut.SENT
        enter, device = (self._first, "eth0") if sent else (self._switch, self._port)
        _in_network(enter, "tc", "qdisc", verb, "dev", device, "root", *kind)

    def _run(self, *command: str) -> None:
        _in_network(self._first, *command)

    def close(self) -> None:
        self._started_first.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first, signal.SIGKILL)
        self._started_first.communicate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait()


class Network:
    """A bridge, the machines at it, and this machine, whose address is the highest."""

    def __init__(self) -> None:
        """CommandError where the system refuses."""
        self._machines: dict[int, Machine] = {}
        self._device = ""
        self._switch = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
        try:
            _until(lambda: _namespace(self._switch.pid, "net") != _namespace(os.getpid(), "net"))
            self._device, self._prefix = self._joined()
            enter = self._switch.pid
            _in_network(enter, "ip", "link", "add", "bridge", "type", "bridge")
            _in_network(enter, "ip", "link", "set", "here", "master", "bridge", "up")
            _in_network(enter, "ip", "link", "set", "bridge", "up")
        except BaseException:
            self.close()
            raise

    def _joined(self) -> tuple[str, str]:
        """Lay a cable from here; return the name of its end, which claims a network also against
        other processes, and the first three numbers of that network's addresses."""
        for number in random.sample(range(_NETWORKS), _NETWORKS):
            device = f"headrace{number}"
            made = subprocess.run(
                ["ip", "link", "add", device, "type", "veth", "peer", "name", "here",
                 "netns", str(self._switch.pid)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if made.returncode == 0:
                prefix = f"198.{18 + number // 256}.{number % 256}"
                _run("ip", "address", "add", f"{prefix}.254/24", "dev", device)
                _run("ip", "link", "set", device, "up")
                return device, prefix
            if "exists" not in made.stderr:
                raise CommandError(f"no network of machines: {made.stderr.strip()}")
        raise CommandError(f"all {_NETWORKS} networks of 198.18.0.0/15 are in use")

    def machine(self, number: int) -> Machine:
        """Make a machine, 1 to 250; also one that was powered off, with nothing on it."""
        address = f"{self._prefix}.{number}"
        first = subprocess.Popen(
            ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", _FIRST],
            stdin=subprocess.PIPE,
        )
        try:
            machine = Machine(number, address, first, self._switch.pid)
        except BaseException:
            first.kill()
            first.communicate()
            raise
        self._machines[number] = machine
        return machine

    def close(self) -> None:
        for machine in self._machines.values():
            machine.close()
        if self._device:
            # The kernel removes it with the bridge, but later.
            with contextlib.suppress(CommandError):
                _run("ip", "link", "delete", self._device)
        self._switch.kill()
        self._switch.communicate()


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """A network whose machines, processes and devices are gone after the block."""
    made = Network()
    try:
        yield made
    finally:
        made.close()


def _in_network(enter: int, *command: str) -> None:
    """Run a command in the network of that process."""
    _run("nsenter", f"--target={enter}", "--net", *command)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(f"{' '.join(command)}: {done.stderr.strip()}")


def _runs_in(pid: int, namespace: str) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    return state not in "ZX" and _namespace(pid, "pid") == namespace


def _namespace(pid: int, kind: str) -> str:
    return _link(f"/proc/{pid}/ns/{kind}")


def _link(path: str) -> str:
    return str(Path(path).readlink())


def _child_of(parent: "subprocess.Popen[bytes]") -> int:
    """Wait for the only child of a process that was just started, and until it runs another
    program."""
    own = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")

    def found() -> int:
        with contextlib.suppress(OSError):
            children = own.read_text().split()
            child = children[0] if children else ""
            if child and _link(f"/proc/{child}/exe") != _link(f"/proc/{parent.pid}/exe"):
                return int(child)
        if parent.poll() is not None:
            raise CommandError(
                f"it ended at once, with status {parent.returncode}: {parent.args!r}"
            )
        return 0

    return _until(found)


def _until(condition: Callable[[], int]) -> int:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > deadline_s:
            raise CommandError("a namespace was not made in time")
        time.sleep(0.002)
    return found
