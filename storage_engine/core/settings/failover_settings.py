"""The part of the table of settings that is about when a broker counts as dead."""

from storage_engine.core.settings.setting import Setting, SettingType

DEATH_PROOF = "broker.death.proof"
BY_PROCESS, BY_PORT, NO_PROOF = "process", "port", "none"

FAILOVER_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="zookeeper.session.timeout.ms",
        type=SettingType.INT,
        default=6000,  # the documented default; Kafka's is 18000 by now
        minimum=1000,
        unit="ms",
        doc="A broker counts as dead when ZooKeeper has not heard from it for this long.",
    ),
    Setting(
        name=DEATH_PROOF,
        type=SettingType.STRING,
        default=BY_PROCESS,  # Kafka has no such setting: its brokers wait for the session
        choices=(BY_PROCESS, BY_PORT, NO_PROOF),
        doc="What proves that another broker is dead; port can be wrong, and lose records of "
        "acks=1.",
    ),
)
