"""The options of a schema registry: where it is, and how it is asked, by Confluent's names.

A setting of TLS has the name that it has for brokers, behind `schema.registry.`. All of them may
stand in the file of `client.config.file` instead, where secrets belong.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from connector.errors import OptionError
from connector.options.given_options import INT32_MAX, GivenOptions, bad_option
from connector.options.registry_names import (
    API_TIMEOUT,
    CREDENTIALS_SOURCE,
    PREFIX,
    REGISTRY_KEYS,
    REGISTRY_SECRETS,
    REQUEST_TIMEOUT,
    TLS_KEYS,
    URL,
    USER_INFO,
)
from storage_engine.core.errors import ConfigError

if TYPE_CHECKING:
    from storage_engine.client.schema_registry_http import RegistryAddress
    from storage_engine.client.security.client_security import ClientTls

_SOURCES = ("user_info", "url")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """Where a registry is. Equal options share a client."""

    inline: "RegistryAddress | None"
    """The address that the options alone give; with a file, see `address`."""

    config_file: str | None = None
    open_options: tuple[tuple[str, str], ...] = ()
    """The options beside a file, none of them secret, which override what stands there."""

    def address(self) -> "RegistryAddress":
        """Reads the file, where there is one, on the machine that it is called on. OptionError
        where it can't be used."""
        if self.inline is not None:
            return self.inline
        assert self.config_file is not None
        return _address({**_of_file(self.config_file), **dict(self.open_options)})


def parse_registry(given: GivenOptions) -> RegistryOptions:
    """OptionError where no registry is named, or where its options are not possible."""
    inline = {key: text for key in REGISTRY_KEYS if (text := given.text(key)) is not None}
    config_file = given.text("client.config.file")
    of_file = {} if config_file is None else _of_file(config_file)
    if URL not in inline and URL not in of_file:
        raise OptionError(
            "MISSING_OPTION",
            f"'{URL}' must be set, for example http://host1:8081: the schemas of Avro records are "
            "in a registry",
        )
    if not of_file:
        return RegistryOptions(inline=_address(inline))
    secrets = sorted(REGISTRY_SECRETS & inline.keys())
    if secrets:
        raise OptionError(
            "BAD_OPTION",
            f"'{secrets[0]}' and 'client.config.file' are both given; move it into the file, which "
            "is there to keep secrets out of Spark's options",
        )
    options = RegistryOptions(
        inline=None, config_file=config_file, open_options=tuple(sorted(inline.items()))
    )
    # A file that is not right is an error of the query, not of a task.
    options.address()
    return options


def given_names(given: GivenOptions, names: Iterable[str]) -> list[str]:
    """The given ones among `names`."""
    return [name for name in names if given.text(name) is not None]


def _of_file(path: str) -> dict[str, str]:
    from storage_engine.client.settings import read_settings_file

    try:
        settings = read_settings_file(Path(path))
    except ConfigError as error:
        raise OptionError("BAD_OPTION", f"'client.config.file': {error}") from None
    found = {key: text for key, text in settings.items() if key.startswith(PREFIX)}
    for key in found:
        if key not in REGISTRY_KEYS:
            raise OptionError("BAD_OPTION", f"'client.config.file': {path}: '{key}' is not known")
    return found


def _address(texts: Mapping[str, str]) -> "RegistryAddress":
    from storage_engine.client.schema_registry_http import (
        DEFAULT_PATIENCE_MS,
        DEFAULT_REQUEST_TIMEOUT_MS,
        RegistryAddress,
        parse_registry_urls,
        with_log_in,
    )

    try:
        urls, user_info = parse_registry_urls(texts[URL])
    except ConfigError as error:
        raise OptionError("BAD_OPTION", f"'{URL}': {error}") from None
    source = texts.get(CREDENTIALS_SOURCE, "").strip().lower()
    if source and source not in _SOURCES:
        raise bad_option(CREDENTIALS_SOURCE, "USER_INFO or URL", texts[CREDENTIALS_SOURCE])
    try:
        user_info = with_log_in(texts.get(USER_INFO), user_info)
    except ConfigError as error:
        raise OptionError("BAD_OPTION", f"'{USER_INFO}': {error}") from None
    return RegistryAddress(
        urls=urls,
        user_info=user_info,
        tls=_tls(texts),
        request_timeout_ms=_milliseconds(texts, REQUEST_TIMEOUT) or DEFAULT_REQUEST_TIMEOUT_MS,
        patience_ms=_milliseconds(texts, API_TIMEOUT) or DEFAULT_PATIENCE_MS,
    )


def _tls(texts: Mapping[str, str]) -> "ClientTls":
    from storage_engine.client.security.client_security import ClientTls
    from storage_engine.client.security.tls_context import tls_context
    from storage_engine.client.settings import client_security

    given = {key: texts[PREFIX + key] for key in TLS_KEYS if PREFIX + key in texts}
    try:
        security = client_security({"security.protocol": "SSL", **given}, client="registry")
        tls = security.tls or ClientTls()
        if given:
            tls_context(tls)
    except ConfigError as error:
        raise OptionError("BAD_OPTION", f"'{PREFIX}…': {error}") from None
    return tls


def _milliseconds(texts: Mapping[str, str], name: str) -> int | None:
    text = texts.get(name)
    if text is None:
        return None
    if not text.strip().isascii() or not text.strip().isdigit():
        raise bad_option(name, f"a whole number from 1 to {INT32_MAX}", text)
    number = int(text)
    if not 1 <= number <= INT32_MAX:
        raise bad_option(name, f"a whole number from 1 to {INT32_MAX}", text)
    return number
