"""From the settings of SASL to one `ClientSasl`, whether Java's users wrote them or librdkafka's.

Source: KIP-85 (sasl.jaas.config), KIP-255 and KIP-768 (OAUTHBEARER), librdkafka's CONFIGURATION.md.
"""

import shlex
from collections.abc import Mapping
from typing import TypeVar

from storage_engine.client.security.client_security import (
    ClaimValue,
    ClientSasl,
    TokenSettings,
)
from storage_engine.client.security.security_rows import LOGIN_HANDLERS, Given
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.jaas import JaasEntry, parse_jaas
from storage_engine.core.security.sasl_client import (
    MECHANISMS,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    PLAIN,
    SCRAM_MECHANISMS,
)
from storage_engine.core.security.security_protocol import Secret

Value = TypeVar("Value")

_JAAS = "sasl.jaas.config"
_OF_MODULES: Mapping[str, tuple[str, ...]] = {
    "ScramLoginModule": SCRAM_MECHANISMS,
    "PlainLoginModule": (PLAIN,),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
}

_CLAIM = "unsecuredLogin{}Claim_"
_EXTENSIONS = ("unsecuredLoginExtension_", "extension_")


def sasl_of(given: Given) -> ClientSasl:
    """`given`: the settings that are given, secrets as `Secret`."""
    jaas = None
    if _JAAS in given:
        jaas = parse_jaas(given[_JAAS].reveal(), key=_JAAS)
        if jaas.module not in _OF_MODULES:
            raise ConfigError(
                f"{_JAAS} has a login module that is not known; known are {', '.join(_OF_MODULES)}"
            )
    mechanism = _mechanism(given, jaas)
    if mechanism == OAUTHBEARER:
        return ClientSasl(mechanism=mechanism, tokens=_tokens(given, jaas))
    if jaas is None:
        username, password = given.get("sasl.username"), given.get("sasl.password")
        where = "sasl.username and sasl.password, or sasl.jaas.config"
    else:
        for key in ("sasl.username", "sasl.password"):
            if key in given:
                raise ConfigError(f"{key} and {_JAAS} are both given; leave one of them out")
        if jaas.options.get("tokenauth", "false").lower() == "true":
            raise ConfigError(
                f"{_JAAS} has tokenauth=true, but delegation tokens are not supported; leave it out"
            )
        username = jaas.options.get("username")
        secret = jaas.options.get("password")
        password = None if secret is None else Secret(secret)
        where = f"username and password in {_JAAS}"
    if not username or not password:
        raise ConfigError(f"{mechanism} needs a user and a password; give {where}")
    return ClientSasl(mechanism=mechanism, username=username, password=password)


def _mechanism(given: Given, jaas: JaasEntry | None) -> str:
    names = [given[key] for key in ("sasl.mechanism", "sasl.mechanisms") if key in given]
    if len({name.upper() for name in names}) > 1:
        raise ConfigError("sasl.mechanism and sasl.mechanisms differ; leave one of them out")
    of_module = () if jaas is None else _OF_MODULES[jaas.module]
    if not names:
        if len(of_module) == 1:
            return of_module[0]
        raise ConfigError(f"sasl.mechanism is missing; give one of {', '.join(MECHANISMS)}")
    mechanism = str(names[0].upper())
    if mechanism == "GSSAPI":
        raise ConfigError("sasl.mechanism GSSAPI (Kerberos) is not supported; use SCRAM-SHA-512")
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism is {names[0]!r}; it must be one of {', '.join(MECHANISMS)}"
        )
    if jaas is not None and mechanism not in of_module:
        raise ConfigError(
            f"sasl.mechanism is {mechanism}, but the login module in {_JAAS} is {jaas.module}, "
            f"which is for {' and '.join(of_module)}"
        )
    return mechanism


# --- OAUTHBEARER ---


def _tokens(given: Given, jaas: JaasEntry | None) -> TokenSettings:
    for key in ("sasl.username", "sasl.password"):
        if key in given:
            raise ConfigError(
                f"{key} is for {', '.join(PASSWORD_MECHANISMS)}; leave it out with {OAUTHBEARER}"
            )
    handler = given.get("sasl.login.callback.handler.class")
    if handler is not None and handler.rpartition(".")[2] not in LOGIN_HANDLERS:
        raise ConfigError(
            "sasl.login.callback.handler.class names a Java class that is not known here; known "
            f"are {', '.join(LOGIN_HANDLERS)}"
        )
    options = {} if jaas is None else dict(jaas.options)
    url = given.get("sasl.oauthbearer.token.endpoint.url")
    secret = options.get("clientSecret")
    settings = TokenSettings(
        endpoint_url=_checked_url(url),
        client_id=_oauth(given, "client.id") or options.get("clientId"),
        client_secret=_oauth(given, "client.secret") or (Secret(secret) if secret else None),
        scope=given.get("sasl.oauthbearer.scope") or options.get("scope"),
        extensions=_extensions(given, options),
        ca_location=given.get("https.ca.location"),
        connect_timeout_ms=max(
            given.get("sasl.login.connect.timeout.ms", 10_000),
            given.get("sasl.login.read.timeout.ms", 10_000),
        ),
        refresh_factor=given.get("sasl.login.refresh.window.factor", 0.8),
        unsecured_claims=() if url is not None else _claims(given, options),
        unsecured_lifetime_s=_lifetime_s(given, options),
    )
    if url is None:
        if not settings.unsecured_claims:
            raise ConfigError(
                f"{OAUTHBEARER} needs sasl.oauthbearer.token.endpoint.url, the URL of its token "
                "(https:, http: or file:)"
            )
    elif not url.lower().startswith("file:") and not (
        settings.client_id and settings.client_secret
    ):
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url needs a client id and its secret; give "
            "sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret, or clientId and "
            f"clientSecret in {_JAAS}"
        )
    return settings


def _checked_url(url: str | None) -> str | None:
    if url is not None and url.lower().partition(":")[0] not in ("http", "https", "file"):
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url must begin with https:, http: or file:"
        )
    return url


def _oauth(given: Mapping[str, Value], what: str) -> Value | None:
    names = (f"sasl.oauthbearer.{what}", f"sasl.oauthbearer.client.credentials.{what}")
    return one_of(given, *names)


def one_of(given: Mapping[str, Value], *names: str) -> Value | None:
    """The value of the one name that is given; None where none is."""
    found = [name for name in names if name in given]
    if len(found) > 1:
        raise ConfigError(
            f"{found[0]} and {found[1]} are both given; leave one of them out: each says the same"
        )
    return given[found[0]] if found else None


def _extensions(given: Given, options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for prefix in _EXTENSIONS:
        for name, value in options.items():
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = value
    for part in given.get("sasl.oauthbearer.extensions", "").split(","):
        if part.strip():
            name, equals, value = part.partition("=")
            if not equals:
                raise ConfigError(
                    "sasl.oauthbearer.extensions must be of the form name=value, several with "
                    "commas"
                )
            found[name.strip()] = value.strip()
    for name, value in _pairs(given).items():
        if name.startswith("extension_"):
            found[name.removeprefix("extension_")] = value
    return tuple(found.items())


def _claims(given: Given, options: Mapping[str, str]) -> tuple[tuple[str, ClaimValue], ...]:
    """The claims of an unsigned token: as Java's module names them, or librdkafka."""
    found: dict[str, ClaimValue] = {}
    for kind in ("String", "Number", "List"):
        prefix = _CLAIM.format(kind)
        for name, text in options.items():
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = _claim(kind, name, text)
    pairs = _pairs(given)
    if not pairs:
        return tuple(found.items())
    if given.get("enable.sasl.oauthbearer.unsecure.jwt") is False:
        raise ConfigError(
            "sasl.oauthbearer.config makes a token without a signature, which "
            "enable.sasl.oauthbearer.unsecure.jwt=false forbids; leave one of the two out"
        )
    if "principal" not in pairs:
        raise ConfigError("sasl.oauthbearer.config must have principal=<name>")
    found[pairs.get("principalClaimName", "sub")] = pairs["principal"]
    if "scope" in pairs:
        found[pairs.get("scopeClaimName", "scope")] = tuple(pairs["scope"].split(","))
    return tuple(found.items())


def _claim(kind: str, name: str, text: str) -> ClaimValue:
    if kind == "String":
        return text
    if kind == "List":
        # The first character is what separates, unless it is part of a name.
        mark = "," if text[:1].isalnum() else text[:1]
        return tuple(part for part in text.split(mark) if part) if text else ()
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{name} in {_JAAS} must be a number") from None


def _lifetime_s(given: Given, options: Mapping[str, str]) -> int:
    text = options.get("unsecuredLoginLifetimeSeconds") or _pairs(given).get("lifeSeconds", "3600")
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 10**9):
        raise ConfigError(
            f"unsecuredLoginLifetimeSeconds in {_JAAS}, or lifeSeconds in sasl.oauthbearer.config, "
            f"is '{text}'; it must be a whole number of seconds"
        )
    return int(text)


def _pairs(given: Given) -> dict[str, str]:
    """`sasl.oauthbearer.config`: name=value, separated by blanks."""
    text = given.get("sasl.oauthbearer.config", "")
    try:
        parts = [part.partition("=") for part in shlex.split(text)]
    except ValueError:
        parts = [("", "", "")]
    if not all(name and equals for name, equals, _ in parts):
        raise ConfigError(
            "sasl.oauthbearer.config must be of the form name=value, several with blanks"
        )
    return {name: value for name, _, value in parts}
