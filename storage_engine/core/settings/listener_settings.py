"""The part of the table of settings that is about listeners."""

from storage_engine.core.security.security_protocol import SecurityProtocol
from storage_engine.core.settings.setting import Setting, SettingType

LISTENER_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="listeners",
        type=SettingType.LIST,
        default=("PLAINTEXT://:9092",),
        doc="The broker listens at each NAME://host:port; without a host, on all addresses.",
    ),
    Setting(
        name="advertised.listeners",
        type=SettingType.LIST,
        doc="The addresses that others connect to, by the names of listeners (default: listeners).",
    ),
    Setting(
        name="listener.security.protocol.map",
        type=SettingType.LIST,
        default=tuple(f"{name}:{name}" for name in SecurityProtocol.__members__),
        doc="NAME:PROTOCOL of each listener; one of PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
    ),
    Setting(
        name="inter.broker.listener.name",
        type=SettingType.STRING,
        doc="Brokers use this listener between them (default: security.inter.broker.protocol).",
    ),
    Setting(
        name="security.inter.broker.protocol",
        type=SettingType.STRING,
        default=SecurityProtocol.PLAINTEXT.name,
        choices=tuple(SecurityProtocol.__members__),
        doc="Brokers use this listener between them, unless inter.broker.listener.name is set.",
    ),
)
