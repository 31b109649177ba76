"""The servers beside the brokers of a local cluster: console, schema registry and lake."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_file import ClusterFile
from storage_engine.tools.local.console_process import ConsoleProcess
from storage_engine.tools.local.lake.lake_process import LakeProcess
from storage_engine.tools.local.registry_process import RegistryProcess


class ClusterWeb:
    """Returns the cluster's state as it is after each step."""

    def __init__(self, directory: Path) -> None:
        self._console = ConsoleProcess(directory)
        self._registry = RegistryProcess(directory)
        self._lake = LakeProcess(directory)

    def found(self, recorded: ClusterFile) -> ClusterFile:
        """The state with the pids of the servers that really run."""
        console, registry, lake = recorded.console, recorded.registry, recorded.lake
        if console is not None:
            console = replace(console, pid=self._console.find(console))
        if registry is not None:
            registry = replace(registry, pid=self._registry.find(registry))
        if lake is not None:
            lake = replace(lake, pid=self._lake.find(lake))
        return replace(recorded, console=console, registry=registry, lake=lake)

    def with_console(self, state: ClusterFile) -> ClusterFile:
        """Start the console unless it runs. CommandError when it does not start."""
        if state.console is not None and state.console.pid is not None:
            return state
        return replace(state, console=self._console.start(state))

    def with_registry(self, state: ClusterFile) -> ClusterFile:
        """Start the registry unless it runs, and stop a console that does not know its address.
        CommandError when it does not start."""
        before = state.registry
        if before is not None and before.pid is not None:
            return state
        registry = self._registry.start(state)
        state = replace(state, registry=registry)
        console, is_new = state.console, before is None or before.url != registry.url
        if is_new and console is not None and self._console.stop(console):
            # It reads the address from the file, which is written behind this step.
            return replace(state, console=replace(console, pid=None))
        return state

    def with_lake(self, state: ClusterFile, root: str | None) -> ClusterFile:
        """Start the lake unless it runs, with this root (None: the one that it had). CommandError
        when it does not start, or runs with another root."""
        lake = state.lake
        wanted = root or (None if lake is None else lake.root)
        assert wanted is not None, "a lake that was never started needs a root"
        if lake is not None and lake.pid is not None:
            if lake.root != wanted:
                raise CommandError(
                    f"the lake of this cluster runs with the root {lake.root}; stop the cluster "
                    "first to give it another one"
                )
            return state
        return replace(state, lake=self._lake.start(state, wanted))

    def stopped(self, state: ClusterFile, progress: Callable[[str], None]) -> ClusterFile:
        """Stop all."""
        if state.lake is not None and self._lake.stop(state.lake):
            progress("lake stopped")
            state = replace(state, lake=replace(state.lake, pid=None))
        if state.console is not None and self._console.stop(state.console):
            progress("console stopped")
            state = replace(state, console=replace(state.console, pid=None))
        if state.registry is not None and self._registry.stop(state.registry):
            progress("registry stopped")
            state = replace(state, registry=replace(state.registry, pid=None))
        return state
