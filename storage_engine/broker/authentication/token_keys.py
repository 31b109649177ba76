"""Checks the JSON web tokens of OAUTHBEARER with the public keys of an identity provider.

The keys are a JWKS document at a URL; the URL of a file begins with `file:`. They are read at the
start, every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and at once when a token names an unknown
key. A background thread reads a URL, so that a provider that hangs blocks nobody. While a provider
does not answer, the keys that were read last stay valid.

A token is accepted when a known key has signed it, its time has begun and is not over, its issuer
and audience are the expected ones, and it names a subject; PyJWT checks this.
Source: RFC 7517, RFC 7519, KIP-768.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from storage_engine.core.errors import ConfigError, HeadraceError
from storage_engine.core.ports import Background, Clock, Scheduler
from storage_engine.core.printable import printable
from storage_engine.core.security.sasl_server import Authenticated, LogInRefusedError, shown
from storage_engine.core.typed.bounded_json import JsonObject

log = logging.getLogger(__name__)


if TYPE_CHECKING:
    from jwt.algorithms import AllowedPublicKeys


JWKS_BYTES_MAX = 1 << 20
KEYS_MAX = 1000
TIMEOUT_S = 10
"""The timeout of each step of a request, and of the whole answer."""
PIECE_BYTES = 64 * 1024
UNKNOWN_KEY_PAUSE_MS = 10_000
"""The shortest pause between reads of the keys because of an unknown one: anybody can send such a
token."""


ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Signature algorithms with a private key, by kind of public key. Neither "none" nor those with a
shared secret: a public key could be taken for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenKey:
    """A public key."""

    key: "AllowedPublicKeys" = field(repr=False)
    algorithms: tuple[str, ...]
    """The signature algorithms that it may be used for."""


Keys = Mapping[str | None, TokenKey]
"""Keys by id; None for a key without one."""


class TokenKeysError(HeadraceError):
    """The keys can't be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Where the keys are, and how often they are read."""

    url: str
    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    retry_max_ms: int = 10_000


class TokenKeys:
    """The keys of one source."""

    def __init__(
        self, source: KeySource, *, scheduler: Scheduler, clock: Clock, background: Background
    ) -> None:
        self._source = source
        self._scheduler = scheduler
        self._clock = clock
        self._background = background
        self._keys: Keys = {}
        self._failures = 0
        self._is_reading = False
        self._read_at_ms = 0
        self._closed = False

    def start(self) -> None:
        """Read a file now, ConfigError when that fails; read a URL in the background."""
        if is_file(self._source.url):
            try:
                self._take(read_keys(self._source.url))
            except TokenKeysError as failure:
                raise ConfigError(str(failure)) from None
            self._again_in(self._source.refresh_ms)
        else:
            self._read()

    def close(self) -> None:
        self._closed = True

    def key(self, key_id: str | None) -> TokenKey | None:
        """The key with that id; without an id the only key; None when there is no such key."""
        found = self._keys.get(key_id)
        if found is None and key_id is None and len(self._keys) == 1:
            found = next(iter(self._keys.values()))
        if found is None and self._is_due():
            self._read()
        return found

    def _is_due(self) -> bool:
        return self._clock.monotonic_ms() - self._read_at_ms >= UNKNOWN_KEY_PAUSE_MS

    def _read(self) -> None:
        if self._is_reading or self._closed:
            return
        self._is_reading = True
        self._read_at_ms = self._clock.monotonic_ms()
        self._background.submit(
            lambda: read_keys(self._source.url), self._on_read, self._on_failure
        )

    def _on_read(self, keys: Keys) -> None:
        self._is_reading = False
        self._take(keys)
        self._again_in(self._source.refresh_ms)

    def _on_failure(self, error: Exception) -> None:
        self._is_reading = False
        log.error("keys of OAUTHBEARER stay as they were (%d keys): %s", len(self._keys), error)
        pause_ms = self._source.retry_ms << min(self._failures, 20)
        self._failures += 1
        self._again_in(min(pause_ms, self._source.retry_max_ms))

    def _take(self, keys: Keys) -> None:
        if self._failures or set(keys) != set(self._keys):
            log.info("keys of OAUTHBEARER read from %s: %d", shown_url(self._source.url), len(keys))
        self._failures = 0
        self._keys = keys

    def _again_in(self, delay_ms: int) -> None:
        read_at_ms = self._read_at_ms

        def read() -> None:
            if self._read_at_ms == read_at_ms:
                self._read()

        self._scheduler.call_later(delay_ms, read)


def is_file(url: str) -> bool:
    return urlsplit(url).scheme == "file"


def check_url(url: str, *, key: str) -> None:
    """Raises ConfigError, which names the setting `key`, when the URL can't hold keys."""
    parts = urlsplit(url)
    is_sound = bool(parts.path) if parts.scheme == "file" else bool(parts.hostname)
    if parts.scheme not in ("file", "http", "https") or not is_sound:
        raise ConfigError(
            f"{key}={shown_url(url)}: must be a URL, https://host/path, or file:///path"
        )


def shown_url(url: str) -> str:
    """The URL without password and query, which may be secret."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return printable(f"{parts.scheme}://{host}{parts.path}")


def read_keys(url: str) -> Keys:
    """Return the keys by id. Raises TokenKeysError of one line. May block for TIMEOUT_S."""
    try:
        return _parsed(_data(url))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TokenKeysError(
            f"sasl.oauthbearer.jwks.endpoint.url={shown_url(url)} can't be read: {reason}"
        ) from None


def _data(url: str) -> bytes:
    # The scheme is known to be http, https or file: `check_url`.
    from urllib.request import urlopen

    end_s = time.monotonic() + TIMEOUT_S
    data = bytearray()
    with urlopen(url, timeout=TIMEOUT_S) as answer:
        while piece := answer.read1(PIECE_BYTES):
            data += piece
            if len(data) > JWKS_BYTES_MAX:
                raise ValueError(f"it has more than {JWKS_BYTES_MAX} bytes")
            if time.monotonic() > end_s:
                raise ValueError(f"it takes longer than {TIMEOUT_S} s")
    return bytes(data)


def _parsed(data: bytes) -> Keys:
    decoded = json.loads(data)
    entries = decoded.get("keys") if isinstance(decoded, dict) else None
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        raise ValueError(f"it is no JWKS: an object with 'keys', {KEYS_MAX} at most")
    keys = {}
    for entry in entries:
        if isinstance(entry, dict) and entry.get("use", "sig") == "sig":
            key = _key(entry)
            if key is not None:
                keys[entry.get("kid")] = key
    if not keys:
        raise ValueError("it has no public key that can be used")
    return keys


def _key(entry: JsonObject) -> TokenKey | None:
    """The key; None for an unsupported kind of key, which other programs may use."""
    import jwt

    algorithms = ALGORITHMS.get(str(entry.get("kty")), ())
    wanted = entry.get("alg")
    if wanted is not None:
        algorithms = tuple(each for each in algorithms if each == wanted)
    key_id = entry.get("kid")
    if not algorithms or not (key_id is None or isinstance(key_id, str)):
        return None
    try:
        return TokenKey(key=jwt.PyJWK({**entry, "alg": algorithms[0]}).key, algorithms=algorithms)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


NAME_CHARACTERS_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The claims that a token must have."""

    audiences: Sequence[str] = ()
    """The accepted audiences; if empty, a token must not name an audience at all."""
    issuer: str | None = None
    principal_claim: str = "sub"
    clock_skew_s: int = 30


KeyOf = Callable[[str | None], TokenKey | None]
"""Returns the key of that id (`kid`); for None the only key; None when there is no such key."""


class TokenCheck:
    """Checks the tokens of one listener."""

    def __init__(self, rules: TokenRules, key_of: KeyOf) -> None:
        # Imported when a broker with OAUTHBEARER starts: it takes a tenth of a second.
        import jwt

        self._rules = rules
        self._key_of = key_of
        self._jwt = jwt

    def __call__(self, token: str) -> Authenticated:
        """Raises LogInRefusedError, which repeats nothing of the token but its key's id."""
        try:
            claims = self._claims(token)
        except (
            self._jwt.PyJWTError,
            ValueError,
            TypeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise LogInRefusedError(f"its token is not valid ({type(error).__name__})") from None
        name = claims.get(self._rules.principal_claim)
        if not isinstance(name, str) or not _can_be_a_name(name.strip()):
            raise LogInRefusedError(
                f"its token has no claim '{self._rules.principal_claim}' that can be a name"
            )
        return Authenticated(name=name.strip(), expires_at_ms=int(claims["exp"]) * 1000)

    def _claims(self, token: str) -> dict[str, Any]:
        key_id = self._jwt.get_unverified_header(token).get("kid")
        key = self._key_of(key_id)
        if key is None:
            name = "the only one" if key_id is None else shown(key_id)
            raise LogInRefusedError(f"its token is signed by a key that is not known: {name}")
        return self._jwt.decode(
            token,
            key=key.key,
            algorithms=list(key.algorithms),
            audience=list(self._rules.audiences) or None,
            issuer=self._rules.issuer,
            leeway=self._rules.clock_skew_s,
            options={"require": ["exp", "iat", self._rules.principal_claim]},
        )


def _can_be_a_name(text: str) -> bool:
    # Names stand in logs.
    return 0 < len(text) <= NAME_CHARACTERS_MAX and text.isprintable()
