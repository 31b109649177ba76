"""The listeners of a broker as its server serves them, all over one dispatcher, and their TLS.

The limits of connections for each address, as the settings change while the broker runs.
"""

import logging
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from storage_engine.broker.quotas.connection_rates import ConnectionRate, CreationRates
from storage_engine.broker.settings.config import (
    OVERRIDES_KEY,
    BrokerConfig,
    by_address,
    parse_overrides,
)
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.listener_map import PREFIX, Listener
from storage_engine.broker.settings.listener_tls import TlsRenewal
from storage_engine.broker.wiring.broker_parts import BrokerParts
from storage_engine.core.ports import Background
from storage_engine.net.connection import Connection
from storage_engine.net.server import Server
from storage_engine.net.serving import ServedListener
from storage_engine.net.tls.contexts import ListenerTls

log = logging.getLogger(__name__)


TlsByListener = Mapping[str, ListenerTls]
"""The TLS of each listener that has it, by its name."""


def load_tls(config: BrokerConfig) -> TlsByListener:
    """Read all key stores and trust stores. Raises ConfigError of one line for a faulty one."""
    found = {}
    for listener in config.listeners.listening:
        if listener.protocol.uses_tls:
            # Imported here, since only TLS needs the libraries.
            from storage_engine.broker.settings.listener_tls import load_profile

            profile = load_profile(config, listener.name, listener.protocol)
            found[listener.name] = ListenerTls(listener.name, profile)
    return found


def tls_to_others(config: BrokerConfig, tls: TlsByListener) -> Callable[[], ssl.SSLContext] | None:
    """Makes the TLS context of connections to other brokers; None where they don't use TLS."""
    own = tls.get(config.listeners.inter_broker.name)
    return None if own is None else lambda: own.client


def served_listeners(parts: BrokerParts, tls: TlsByListener) -> list[ServedListener[Connection]]:
    """The listeners in the settings, ready for the server."""
    listeners = parts.ports.config.listeners.listening
    rate = ConnectionRate(parts.settings.clients, parts.ports.scheduler)
    created = CreationRates(parts.settings.config, parts.ports.clock)
    return [_served(each, parts, tls.get(each.name), rate, created) for each in listeners]


def look_after_tls(parts: BrokerParts, tls: TlsByListener) -> None:
    """Renew the certificates while the broker runs, and log their expiry."""
    if tls:
        TlsRenewal(
            tls,
            parts.settings.config,
            background=parts.ports.background,
            scheduler=parts.ports.scheduler,
            clock=parts.ports.clock,
        ).start()


def _served(
    listener: Listener,
    parts: BrokerParts,
    tls: ListenerTls | None,
    rate: ConnectionRate,
    created: CreationRates,
) -> ServedListener[Connection]:
    names = parts.ports.config.listeners.names
    inter_broker = parts.ports.config.listeners.inter_broker
    is_for_brokers = len(names) > 1 and listener.name == inter_broker.name
    on_opened: Callable[[Connection], None] = rate.opened
    if listener.protocol.uses_sasl:
        on_opened = partial(_one_after_the_other, parts.authentication.gate.opened, rate.opened)
    elif tls is not None:
        on_opened = partial(_one_after_the_other, partial(_identify, tls), rate.opened)
    return ServedListener(
        name=listener.name,
        host=listener.host,
        port=listener.port,
        handle=parts.dispatcher,
        on_opened=on_opened,
        tls=tls,
        max_connections=_own_limit(parts.ports.config, listener),
        rate=created.of(listener.name, is_for_brokers=is_for_brokers),
        is_for_brokers=is_for_brokers,
    )


def _own_limit(config: BrokerConfig, listener: Listener) -> int | None:
    key = f"{PREFIX}{listener.name.lower()}.max.connections"
    return config.optional_integer(key) if config.is_given(key) else None


def _one_after_the_other(
    first: Callable[[Connection], None],
    second: Callable[[Connection], None],
    connection: Connection,
) -> None:
    first(connection)
    second(connection)


def _identify(tls: ListenerTls, connection: Connection) -> None:
    """Set the connection's principal to that of its certificate."""
    assert connection.tls is not None
    principal = tls.principal_of(connection.tls)
    if principal is None:
        connection.close("no rule of ssl.principal.mapping.rules fits its certificate's subject")
    else:
        connection.principal = principal


PER_IP_KEY = "max.connections.per.ip"


class _Limits(NamedTuple):
    per_ip: int
    overrides: Mapping[str, int]
    """The limit of each host name or address in `max.connections.per.ip.overrides`."""


class AddressLimits:
    """Gives a server the limits of addresses whenever they change. Connections above a lowered
    limit stay open."""

    def __init__(self, server: Server, config: DynamicConfig, background: Background) -> None:
        self._server = server
        self._config = config
        self._background = background
        static = config.static
        self._taken = _Limits(static.integer(PER_IP_KEY), static.per_ip_overrides)

    def start(self) -> None:
        self._config.checks.append(self._check)
        self._config.on_read.append(self._read_again)
        self._read_again()

    def _check(self, trial: DynamicConfig) -> None:
        """Raises ConfigError for overrides of another form."""
        self._wanted(trial)

    def _wanted(self, config: DynamicConfig) -> _Limits:
        overrides = parse_overrides(config.items(OVERRIDES_KEY))
        return _Limits(config.integer(PER_IP_KEY), overrides)

    def _read_again(self) -> None:
        wanted = self._wanted(self._config)
        if wanted == self._taken:
            return
        self._taken = wanted
        # Host names are looked up, which may take long.
        self._background.submit(
            lambda: by_address(dict(wanted.overrides)),
            lambda overrides: self._take(wanted, overrides),
            lambda failure: log.error("limits of addresses not applied: %s", failure),
        )

    def _take(self, wanted: _Limits, overrides: Mapping[str, int]) -> None:
        if wanted is self._taken:
            self._server.limit_addresses(wanted.per_ip, overrides)
            log.info("limits of addresses applied most=%d overrides=%s", wanted.per_ip, overrides)
