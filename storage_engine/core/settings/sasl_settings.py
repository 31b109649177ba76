"""The part of the table of settings that is about log-ins by SASL."""

from storage_engine.core.security.sasl_client import MECHANISMS
from storage_engine.core.settings.setting import Setting, SettingType

SASL_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="sasl.enabled.mechanisms",
        type=SettingType.LIST,
        choices=MECHANISMS,
        per_listener=True,  # Kafka's default is GSSAPI, which is not served
        doc="The mechanisms by which clients log in at listeners with SASL_PLAINTEXT or SASL_SSL.",
    ),
    Setting(
        name="sasl.mechanism.inter.broker.protocol",
        type=SettingType.STRING,
        choices=MECHANISMS,  # Kafka's default is GSSAPI, which is not served
        doc="The mechanism by which brokers log in to each other, if their listener asks for it.",
    ),
    Setting(
        name="sasl.jaas.config",
        type=SettingType.PASSWORD,
        per_listener=True,
        per_mechanism=True,
        doc="A login module with the user and password of this broker, for PLAIN also of clients "
        "(user_NAME).",
    ),
    Setting(
        name="sasl.plain.users.file",
        type=SettingType.STRING,
        per_listener=True,
        doc="A file of clients that log in by PLAIN, user=password in each line, for its owner "
        "alone.",
    ),
    Setting(
        name="sasl.server.max.receive.size",
        type=SettingType.INT,
        default=524288,
        minimum=1024,
        maximum=16 * 1024 * 1024,
        unit="bytes",
        doc="The largest request of a client that has not logged in yet.",
    ),
    Setting(
        name="connections.max.reauth.ms",
        type=SettingType.LONG,
        default=0,
        minimum=0,
        unit="ms",
        per_listener=True,
        per_mechanism=True,
        doc="A client that logged in by SASL has to do so again after this time; 0: never.",
    ),
    Setting(
        name="connection.failed.authentication.delay.ms",
        type=SettingType.INT,
        default=100,
        minimum=0,
        maximum=60_000,
        unit="ms",
        doc="A log-in that failed is answered after this time.",
    ),
    Setting(
        name="sasl.oauthbearer.jwks.endpoint.url",
        type=SettingType.STRING,
        per_listener=True,
        per_mechanism=True,
        doc="The public keys for OAUTHBEARER: a JWKS at an https, http or file URL.",
    ),
    Setting(
        name="sasl.oauthbearer.jwks.endpoint.refresh.ms",
        type=SettingType.LONG,
        default=3_600_000,
        minimum=1000,
        unit="ms",
        per_listener=True,
        per_mechanism=True,
        doc="The keys are read again after this time.",
    ),
    Setting(
        name="sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        type=SettingType.LONG,
        default=100,
        minimum=1,
        unit="ms",
        per_listener=True,
        per_mechanism=True,
        doc="After a failed read of the keys the next one waits for this time, then for twice as "
        "long, and so on.",
    ),
    Setting(
        name="sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        type=SettingType.LONG,
        default=10_000,
        minimum=1,
        unit="ms",
        per_listener=True,
        per_mechanism=True,
        doc="The longest such wait.",
    ),
    Setting(
        name="sasl.oauthbearer.expected.audience",
        type=SettingType.LIST,
        per_listener=True,
        per_mechanism=True,
        doc="A token must be for one of these audiences; if none is set, for no audience.",
    ),
    Setting(
        name="sasl.oauthbearer.expected.issuer",
        type=SettingType.STRING,
        per_listener=True,
        per_mechanism=True,
        doc="A token must be from this issuer (default: from any whose keys are there).",
    ),
    Setting(
        name="sasl.oauthbearer.sub.claim.name",
        type=SettingType.STRING,
        default="sub",
        may_be_empty=False,
        per_listener=True,
        per_mechanism=True,
        doc="The claim of a token that names the client.",
    ),
    Setting(
        name="sasl.oauthbearer.clock.skew.seconds",
        type=SettingType.INT,
        default=30,
        minimum=0,
        maximum=3600,
        unit="s",
        per_listener=True,
        per_mechanism=True,
        doc="The clock of the identity provider may differ from this broker's by this time.",
    ),
)
