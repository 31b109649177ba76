"""The part of the table of settings that is about connections and requests."""

from storage_engine.core.settings.setting import Setting, SettingType

_SYSTEM_BUFFER = -1

NETWORK_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="queued.max.requests",
        type=SettingType.INT,
        default=500,
        minimum=1,
        unit="requests",
        doc="The broker reads no more requests while this many, of all connections, are "
        "unanswered.",
    ),
    Setting(
        name="socket.request.max.bytes",
        type=SettingType.INT,
        default=100 << 20,
        minimum=1,
        unit="bytes",
        doc="The largest request. A connection that sends a larger one is closed.",
    ),
    Setting(
        name="socket.send.buffer.bytes",
        type=SettingType.INT,
        default=_SYSTEM_BUFFER,  # Kafka's 102400 would cap what the system adapts by itself
        minimum=-1,
        unit="bytes",
        doc="The send buffer of each connection; with -1 the operating system chooses.",
    ),
    Setting(
        name="socket.receive.buffer.bytes",
        type=SettingType.INT,
        default=_SYSTEM_BUFFER,  # as above
        minimum=-1,
        unit="bytes",
        doc="The receive buffer of each connection; with -1 the operating system chooses.",
    ),
    Setting(
        name="max.connections",
        type=SettingType.INT,
        minimum=0,
        per_listener=True,
        unit="connections",
        doc="The most connections of all clients (default: what the limit of open files allows).",
    ),
    Setting(
        name="max.connections.per.ip",
        type=SettingType.INT,
        default=2**31 - 1,
        minimum=0,
        unit="connections",
        live=True,
        doc="The most connections from one IP address.",
    ),
    Setting(
        name="max.connections.per.ip.overrides",
        type=SettingType.LIST,
        live=True,
        doc="Limits that differ for some hosts or addresses: host:number,host:number.",
    ),
    Setting(
        name="max.connection.creation.rate",
        type=SettingType.INT,
        default=2**31 - 1,
        minimum=1,
        per_listener=True,
        live=True,
        live_per_listener=True,
        unit="connections a second",
        doc="The most new connections in a second; further ones wait until there is room.",
    ),
    Setting(
        name="queued.max.request.bytes",
        type=SettingType.LONG,
        default=-1,
        minimum=-1,
        unit="bytes",
        doc="The most memory for large requests that wait to be handled; -1 sets no limit.",
    ),
    Setting(
        name="connections.max.idle.ms",
        type=SettingType.LONG,
        default=600_000,
        minimum=-1,
        unit="ms",
        doc="A connection is closed after this long without a request; with -1 it never is.",
    ),
    Setting(
        name="max.incremental.fetch.session.cache.slots",
        type=SettingType.INT,
        default=1000,
        minimum=0,
        unit="sessions",
        doc="The most fetch sessions that the broker keeps; 0 keeps none.",
    ),
    Setting(
        name="max.request.partition.size.limit",
        type=SettingType.INT,
        default=2_000,
        minimum=1,
        unit="partitions",
        doc="The most partitions in one answer to DescribeTopicPartitions.",
    ),
)
