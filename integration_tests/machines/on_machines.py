"""Machines for brokers and ZooKeepers (`benchmarks.machines.machines`); a test that needs them is
skipped where there can be none."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machines.machine_cluster import MachineCluster, machine_cluster
from benchmarks.machines.machines import Network, network, why_no_loss, why_not

FEW_PARTITIONS = {"offsets.topic.num.partitions": "3"}


@contextlib.contextmanager
def machines() -> Iterator[Network]:
    """A network without machines, or a skip that tells why."""
    _skip_if(why_not())
    with network() as made:
        yield made


@contextlib.contextmanager
def cluster_on_machines(
    folder: Path, settings: Mapping[str, str] | None = None, **options: Any
) -> Iterator[MachineCluster]:
    """By default three machines with a broker and a ZooKeeper each, or a skip that tells why."""
    _skip_if(why_not())
    with machine_cluster(folder, {**FEW_PARTITIONS, **(settings or {})}, **options) as cluster:
        yield cluster


def needs_loss() -> None:
    _skip_if(why_no_loss())


def _skip_if(reason: str) -> None:
    if reason:
        pytest.skip(reason)
