"""Registries as processes that can be killed and paused."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from integration_tests.forks.forked import ROOT
from integration_tests.support.cluster_support import HasBootstrapServers, wait_until
from storage_engine.tools.local.free_ports import find_free_port

SESSION_S = 3
"""The least that the shared cluster takes."""
_WRITER = re.compile(r"the writer is (\S+)")


class RegistryUnderFire:
    """One instance, on its own port, started again and again."""

    def __init__(
        self,
        cluster: HasBootstrapServers,
        folder: Path,
        topic: str,
        *,
        has_typed_topics: bool = False,
    ) -> None:
        """`has_typed_topics`: it registers those of all tests that share the cluster."""
        self.port = find_free_port("127.0.0.1")
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"registry-{self.port}.log"
        self._arguments = [
            *("--bootstrap-server", cluster.bootstrap_servers),
            *("--listen", f"127.0.0.1:{self.port}", "--topic", topic, "--group", topic),
            *("--session-timeout", str(SESSION_S)),
            *(() if has_typed_topics else ("--without-typed-topics",)),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.code = ROOT
        """Whose version runs from the next start on."""

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "storage_engine.tools.cli", "registry"),
                    *self._arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.code,
                env=os.environ | {"PYTHONPATH": str(self.code)},
            )
        wait_until(self.answers, f"the registry on port {self.port}: {self.log.read_text()}")

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def send(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)

    def kill(self) -> None:
        """SIGKILL, also while it is paused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def writer(self) -> str | None:
        """Who writes, as it was told last."""
        found = _WRITER.findall(self.log.read_text())
        return found[-1] if found else None


@contextlib.contextmanager
def two_registries(
    cluster: HasBootstrapServers, folder: Path, topic: str
) -> Iterator[list[RegistryUnderFire]]:
    registries = [RegistryUnderFire(cluster, folder, topic) for _ in range(2)]
    try:
        for each in registries:
            each.start()
        yield registries
    finally:
        for each in registries:
            each.kill()
