"""The part of the table of settings that is about TLS. Each may be set for one listener alone, with
`listener.name.<name>.` before it, and so be changed at run time."""

from storage_engine.core.settings.setting import Setting, SettingType


def _row(
    name: str,
    doc: str,
    *,
    type: SettingType = SettingType.STRING,
    default: str | tuple[str, ...] | None = None,
    choices: tuple[str, ...] = (),
    form: str = "",
) -> Setting:
    return Setting(
        name=name,
        type=type,
        default=default,
        choices=choices,
        form=form,
        per_listener=True,
        live_per_listener=type is not SettingType.PASSWORD,
        doc=doc,
    )


_TYPES = ("PEM", "PKCS12")
_TYPE_FORM = "PEM or PKCS12; keytool -importkeystore -deststoretype PKCS12 makes one of a JKS store"

TLS_SETTINGS: tuple[Setting, ...] = (
    _row(
        "ssl.keystore.type",
        "The form of the key store (default: what the file is).",
        choices=_TYPES,
        form=_TYPE_FORM,
    ),
    _row(
        "ssl.keystore.location",
        "The file with the broker's key and certificates; set it again to have it read again.",
    ),
    _row(
        "ssl.keystore.password",
        "The password of a PKCS12 key store.",
        type=SettingType.PASSWORD,
    ),
    _row(
        "ssl.keystore.certificate.chain",
        "The broker's certificate in PEM with those above it, in place of a file.",
        type=SettingType.PASSWORD,
    ),
    _row(
        "ssl.keystore.key",
        "The key of that certificate in PEM.",
        type=SettingType.PASSWORD,
    ),
    _row(
        "ssl.key.password",
        "The password of an encrypted key in PEM.",
        type=SettingType.PASSWORD,
    ),
    _row(
        "ssl.truststore.type",
        "The form of the trust store (default: what the file is).",
        choices=_TYPES,
        form=_TYPE_FORM,
    ),
    _row(
        "ssl.truststore.location",
        "The file with the authorities whose certificates are believed.",
    ),
    _row(
        "ssl.truststore.password",
        "The password of a PKCS12 trust store.",
        type=SettingType.PASSWORD,
    ),
    _row(
        "ssl.truststore.certificates",
        "Those authorities in PEM, in place of a file.",
        type=SettingType.PASSWORD,
    ),
    _row(
        "ssl.client.auth",
        "Whether clients show a certificate of their own, which names their principal.",
        default="none",
        choices=("none", "requested", "required"),
    ),
    _row(
        "ssl.enabled.protocols",
        "The versions of TLS that are spoken; no older ones are.",
        type=SettingType.LIST,
        default=("TLSv1.2", "TLSv1.3"),
        choices=("TLSv1.2", "TLSv1.3"),
    ),
    _row(
        "ssl.cipher.suites",
        "The cipher suites, by their standard names or OpenSSL's (default: all that are safe).",
        type=SettingType.LIST,
    ),
    _row(
        "ssl.endpoint.identification.algorithm",
        "With https brokers check each other's host names; empty: they don't.",
        default="https",
        choices=("https", "HTTPS", ""),
        form="https, or empty",
    ),
    _row(
        "ssl.principal.mapping.rules",
        "How principals get their names from subjects: DEFAULT, RULE:pattern/replacement/[LU].",
        default="DEFAULT",
    ),
)
