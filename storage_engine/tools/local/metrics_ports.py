"""The addresses at which the brokers of a local cluster give their metrics.

Each has a port of its own on the loopback. What a person has written into a broker's
`metrics.listener` stays: another address, or nothing, for no metrics.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.tools.local.cluster_file import BrokerEntry
from storage_engine.tools.local.cluster_plan import HOST, Ports
from storage_engine.tools.local.free_ports import HIGHEST_PORT

DISTANCE = 10_000
"""From a broker's port to that of its metrics, where it is free: 19092 for 9092."""


def with_metrics(
    brokers: tuple[BrokerEntry, ...],
    given: Mapping[int, str | None],
    *,
    running: Collection[int],
    any_port: bool,
    taken: Collection[int] = (),
    ports: Ports | None = None,
) -> tuple[BrokerEntry, ...]:
    """The brokers with their addresses. `given`: by id what its file, or the caller, has for
    `metrics.listener`; None: nothing. `any_port`: rather than one that a person can guess."""
    ports = ports or Ports()
    avoid = {*taken, *(entry.port for entry in brokers)}
    result = []
    for entry in brokers:
        listener = given[entry.id]
        if entry.id not in running and _is_ours(listener):
            port = _port_of(listener)
            if port is None or port in avoid or not ports.is_free(HOST, port):
                port = _new_port(entry, avoid, ports, any_port=any_port)
            listener = f"{HOST}:{port}"
        if listener:
            avoid.add(_port_of(listener) or 0)
        result.append(replace(entry, metrics=listener or None))
    return tuple(result)


def metrics_of(config: BrokerConfig) -> str | None:
    """The address in a broker's settings."""
    return None if config.metrics is None else f"{config.metrics.host}:{config.metrics.port}"


def metrics_port_is_free(entry: BrokerEntry, ports: Ports | None = None) -> bool:
    """Whether a broker that starts now would get the port of its metrics."""
    if entry.metrics is None or not _is_ours(entry.metrics):
        return True
    return (ports or Ports()).is_free(HOST, _port_of(entry.metrics) or 0)


def _is_ours(listener: str | None) -> bool:
    """Whether `headrace up` may choose the port: it has written the address, or nobody has."""
    if listener is None:
        return True
    host, _, port = listener.partition(":")
    return host == HOST and port.isdigit() and port != "0"


def _port_of(listener: str | None) -> int | None:
    port = (listener or "").rpartition(":")[2]
    return int(port) if port.isdigit() else None


def _new_port(entry: BrokerEntry, avoid: set[int], ports: Ports, *, any_port: bool) -> int:
    port = entry.port + DISTANCE
    is_usable = not any_port and port <= HIGHEST_PORT and port not in avoid
    if is_usable and ports.is_free(HOST, port):
        return port
    return ports.find(HOST, avoid)
