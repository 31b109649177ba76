"""Podman with storage of its own, and the image of conf/container on a base made here.

No registry of images is needed: the base is made of Debian's packages, as `debian:bookworm-slim`
is. Containers run in a namespace of mounts without the second hierarchy of control groups, which
crun refuses beside the first.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from integration_tests.alone.environments import build_wheel

ROOT = Path(__file__).parents[2]
CONTAINER = ROOT / "conf" / "container"
PROGRAMS = ("podman", "podman-compose", "crun", "mmdebstrap", "unshare", "nsenter")
IMAGE, BASE = "headrace", "localhost/debian:bookworm-slim"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
BUILD_S, RUN_S = 1200.0, 180.0
UNIFIED = Path("/sys/fs/cgroup/unified")
_CONFIGURATION = """\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]
[network]
network_backend = "netavark"
[engine]
cgroup_manager = "cgroupfs"
runtime = "crun"
events_logger = "file"
"""


def skip_where_containers_cannot_run() -> None:
    missing = [each for each in PROGRAMS if shutil.which(each) is None]
    if missing:
        pytest.skip(f"containers need {', '.join(missing)}: apt-get install podman podman-compose "
                    "crun netavark aardvark-dns iptables mmdebstrap")  # fmt: skip
    if os.getuid() != 0:
        pytest.skip("containers are made by root here")


class Podman:
    """The command in `path` is podman for whoever starts it, such as podman-compose."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "podman"
        _, files = _descriptors()
        configuration = folder / "containers.conf"
        configuration.write_text(_CONFIGURATION.format(files=files))
        leave = f"umount {UNIFIED}; " if UNIFIED.is_dir() else ""
        self._namespace = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f"{leave}echo; exec sleep infinity"],
            stdout=subprocess.PIPE,
        )
        assert self._namespace.stdout is not None
        self._namespace.stdout.readline()
        storage = f"--root {folder}/storage --runroot {folder}/run --storage-driver overlay"
        self.path.write_text(
            f"#!/bin/sh\nexport CONTAINERS_CONF={configuration}\n"
            f"exec nsenter --mount --target {self._namespace.pid} /usr/bin/podman {storage} "
            '"$@"\n'
        )
        self.path.chmod(0o755)

    def __call__(self, *arguments: str | Path, timeout_s: float = RUN_S) -> str:
        """What it prints; AssertionError where it fails."""
        done = self.run(*arguments, timeout_s=timeout_s)
        assert done.returncode == 0, f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout.strip()

    def run(
        self, *arguments: str | Path, timeout_s: float = RUN_S
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.path, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def build_image(self) -> None:
        """From the wheel, as the head of the Containerfile says."""
        packed = self._folder / "base.tar"
        suite: list[str | Path] = ["bookworm", packed, "http://deb.debian.org/debian"]
        _run(["mmdebstrap", "--variant=minbase", "--include=ca-certificates", *suite])
        self("import", "--quiet", packed, BASE)
        packed.unlink()
        wheel = self._folder / "wheel"
        wheel.mkdir()
        context = self._folder / "dist"
        context.mkdir()
        shutil.copy(build_wheel(wheel), context)
        self(
            *("build", "--format", "docker", "--isolation", "chroot", "--network", "host"),
            *("--volume", f"{AUTHORITIES}:{AUTHORITIES}:ro", "--build-arg", f"BASE={BASE}"),
            *("--file", CONTAINER / "Containerfile", "--tag", IMAGE, context),
            timeout_s=BUILD_S,
        )

    def first_process(self, container: str) -> int:
        return int(self("inspect", "--format", "{{.State.Pid}}", container))

    def exit_status(self, container: str) -> int:
        return int(self("inspect", "--format", "{{.State.ExitCode}}", container))

    def close(self) -> None:
        """All containers and mounts are gone. Networks are the machine's: whoever made one removes
        it."""
        self.run("rm", "--force", "--all", "--time", "0")
        self._namespace.kill()
        self._namespace.wait()
        until_s = time.monotonic() + RUN_S
        while time.monotonic() < until_s and _mounts_below(self._folder):
            for each in _mounts_below(self._folder):
                subprocess.run(["umount", "--lazy", each], check=False)
        shutil.rmtree(self._folder)


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def _descriptors() -> tuple[int, int]:
    """Soft and hard limit: a container gets no more than its host has."""
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _mounts_below(folder: Path) -> list[str]:
    lines = Path("/proc/mounts").read_text().splitlines()
    places = [line.split()[1] for line in lines]
    return [each for each in reversed(places) if each.startswith(f"{folder}/")]
