"""The web servers of a local cluster: its console and its schema registry."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from storage_engine.tools.local.cluster_file import ClusterFile
from storage_engine.tools.local.console_process import ConsoleProcess
from storage_engine.tools.local.registry_process import RegistryProcess


class ClusterWeb:
    """Returns the cluster's state as it is after each step."""

    def __init__(self, directory: Path) -> None:
        self._console = ConsoleProcess(directory)
        self._registry = RegistryProcess(directory)

    def found(self, recorded: ClusterFile) -> ClusterFile:
        """The state with the pids of the servers that really run."""
        console, registry = recorded.console, recorded.registry
        if console is not None:
            console = replace(console, pid=self._console.find(console))
        if registry is not None:
            registry = replace(registry, pid=self._registry.find(registry))
        return replace(recorded, console=console, registry=registry)

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

    def stopped(self, state: ClusterFile, progress: Callable[[str], None]) -> ClusterFile:
        """Stop both."""
        if state.console is not None and self._console.stop(state.console):
            progress("console stopped")
            state = replace(state, console=replace(state.console, pid=None))
        if state.registry is not None and self._registry.stop(state.registry):
            progress("registry stopped")
            state = replace(state, registry=replace(state.registry, pid=None))
        return state
