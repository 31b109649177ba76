"""The listeners of a broker as its server serves them, all over one dispatcher, and their TLS."""

import ssl
from collections.abc import Callable, Mapping
from functools import partial

from storage_engine.broker.quotas.client_usage import ConnectionRate, CreationRates
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.listener_map import PREFIX, Listener
from storage_engine.broker.settings.listener_tls import TlsRenewal
from storage_engine.broker.wiring.build import BrokerParts
from storage_engine.net.connection import Connection
from storage_engine.net.serving import ServedListener
from storage_engine.net.tls.contexts import ListenerTls

TlsByListener = Mapping[str, ListenerTls]
"""The TLS of each listener that has it, by its name."""


def load_tls(config: BrokerConfig) -> TlsByListener:
    """Reads all key stores and trust stores. ConfigError of one line for what is wrong with one."""
    found = {}
    for listener in config.listeners.listening:
        if listener.protocol.uses_tls:
            # Only these load the libraries.
            from storage_engine.broker.settings.listener_tls import load_profile

            profile = load_profile(config, listener.name, listener.protocol)
            found[listener.name] = ListenerTls(listener.name, profile)
    return found


def tls_to_others(config: BrokerConfig, tls: TlsByListener) -> Callable[[], ssl.SSLContext] | None:
    """What connections to other brokers are encrypted with; None where they are not."""
    own = tls.get(config.listeners.inter_broker.name)
    return None if own is None else lambda: own.client


def served_listeners(parts: BrokerParts, tls: TlsByListener) -> list[ServedListener[Connection]]:
    """What the settings name."""
    listeners = parts.ports.config.listeners.listening
    rate = ConnectionRate(parts.settings.clients, parts.ports.scheduler)
    created = CreationRates(parts.settings.config, parts.ports.clock)
    return [_served(each, parts, tls.get(each.name), rate, created) for each in listeners]


def look_after_tls(parts: BrokerParts, tls: TlsByListener) -> None:
    """Renew the certificates while the broker runs, and tell their ends."""
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
    """The client is whom its certificate names."""
    assert connection.tls is not None
    principal = tls.principal_of(connection.tls)
    if principal is None:
        connection.close("no rule of ssl.principal.mapping.rules fits its certificate's subject")
    else:
        connection.principal = principal
