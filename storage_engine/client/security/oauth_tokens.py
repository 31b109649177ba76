"""The tokens of OAUTHBEARER: asked for at an endpoint, read from a file, or made without signature.

Rule: a token is kept until a part of its lifetime is over, for all connections of the process; one
that is shown to a broker is never past its end. Secrets go to the endpoint alone: no redirect is
followed, and no error repeats what was sent or answered. Source: RFC 6749, 4.4 (client
credentials); KIP-768; KIP-255 (unsecured tokens).
"""

import base64
import json
import time
from typing import TYPE_CHECKING, NamedTuple

from storage_engine.client.security.client_security import ClaimValue, TokenSettings
from storage_engine.core.errors import AuthenticationError, ErrorCode, KafkaError
from storage_engine.core.typed.bounded_json import JsonObject
from storage_engine.net.deadline import Deadline

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

MAX_ANSWER_BYTES = 1 << 20
MAX_KEPT = 16
"""Tokens of so many settings are kept by a process."""

_REFUSED = (400, 401, 403)
_DEFAULT_LIFETIME_S = 3_600


class BearerToken(NamedTuple):
    """Never shown: it is as good as a password until it ends."""

    text: str
    renew_at_s: float
    """The wall clock time of its renewal; times within tokens use that clock, too."""

    def __repr__(self) -> str:
        return "BearerToken([hidden])"


_kept: dict[TokenSettings, BearerToken] = {}


def bearer_token(settings: TokenSettings, deadline: Deadline) -> str:
    """A token that may be shown now. AuthenticationError when the endpoint refuses, or a file can't
    be read; KafkaError(NETWORK_EXCEPTION) when the endpoint can't be reached."""
    url = settings.endpoint_url
    if url is not None and url.lower().startswith("file:"):
        # Whoever writes the file renews it.
        return _from_file(url)
    kept = _kept.get(settings)
    if kept is not None and time.time() < kept.renew_at_s:
        return kept.text
    fresh = _unsecured(settings) if url is None else _from_endpoint(settings, url, deadline)
    # Other threads may do the same: a copy is taken of what is iterated over.
    for oldest in list(_kept)[: max(0, len(_kept) - MAX_KEPT + 1)]:
        _kept.pop(oldest, None)
    _kept[settings] = fresh
    return fresh.text


def forget_token(settings: TokenSettings) -> None:
    """The next log-in asks for another: a broker has refused this one."""
    _kept.pop(settings, None)


def _unsecured(settings: TokenSettings) -> BearerToken:
    import jwt

    now_s = int(time.time())
    lifetime_s = settings.unsecured_lifetime_s
    claims: dict[str, ClaimValue | list[str]] = {"iat": now_s, "exp": now_s + lifetime_s}
    for name, value in settings.unsecured_claims:
        claims[name] = list(value) if isinstance(value, tuple) else value
    text = jwt.encode(claims, "", algorithm="none")
    return BearerToken(text, now_s + lifetime_s * settings.refresh_factor)


def _from_file(url: str) -> str:
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    path = Path(unquote(urlsplit(url).path))
    try:
        with path.open(encoding="ascii") as file:
            return file.read(MAX_ANSWER_BYTES).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no token"
        raise AuthenticationError(
            f"sasl.oauthbearer.token.endpoint.url={url} can't be read: {reason}"
        ) from None


def _from_endpoint(settings: TokenSettings, url: str, deadline: Deadline) -> BearerToken:
    from urllib.error import HTTPError, URLError
    from urllib.parse import urlencode
    from urllib.request import Request

    assert settings.client_secret is not None
    pair = f"{settings.client_id}:{settings.client_secret.reveal()}".encode()
    form = {"grant_type": "client_credentials"}
    if settings.scope:
        form["scope"] = settings.scope
    request = Request(
        url,
        data=urlencode(form).encode(),
        headers={
            "Authorization": f"Basic {base64.b64encode(pair).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
    )
    limit = deadline.no_later_than(settings.connect_timeout_ms)
    asked_s = time.time()
    try:
        with _opener(settings).open(request, timeout=max(0.001, limit.left_ms / 1000)) as answer:
            data = answer.read(MAX_ANSWER_BYTES)
    except HTTPError as error:
        error.close()
        if error.code in _REFUSED:
            raise AuthenticationError(
                f"{url} gives no token (HTTP {error.code}); check the client id, its secret and "
                "the scope"
            ) from None
        raise _unreachable(url, f"HTTP {error.code}") from None
    except URLError as error:
        raise _unreachable(
            url, str(getattr(error.reason, "strerror", None) or "no answer")
        ) from None
    except OSError as error:
        raise _unreachable(url, error.strerror or "no answer") from None
    except ValueError:
        raise AuthenticationError(f"sasl.oauthbearer.token.endpoint.url={url} is no URL") from None
    return _answered(data, url, asked_s, settings.refresh_factor)


def _opener(settings: TokenSettings) -> "OpenerDirector":
    import ssl
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """A redirect would carry the secret to another host."""

        def redirect_request(self, *args: object, **named: object) -> None:
            return None

    try:
        context = ssl.create_default_context(cafile=settings.ca_location)
    except OSError:
        raise AuthenticationError(
            f"https.ca.location={settings.ca_location} can't be read as a PEM file"
        ) from None
    return build_opener(NoRedirects, HTTPSHandler(context=context))


def _answered(data: bytes, url: str, asked_s: float, factor: float) -> BearerToken:
    try:
        answer = json.loads(data)
        text = answer["access_token"]
        if not isinstance(text, str) or not text:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _unreachable(url, "its answer has no access_token") from None
    lifetime_s = _lifetime_s(answer, text, asked_s)
    return BearerToken(text, asked_s + lifetime_s * factor)


def _lifetime_s(answer: JsonObject, text: str, now_s: float) -> float:
    """Return the shorter of the lifetimes in the answer and in the token itself."""
    import jwt

    found = []
    told = answer.get("expires_in")
    if isinstance(told, int | float) and not isinstance(told, bool):
        found.append(float(told))
    try:
        claims = jwt.decode(text, options={"verify_signature": False})
        found.append(float(claims["exp"]) - now_s)
    except (jwt.InvalidTokenError, KeyError, TypeError, ValueError):
        # Tokens may be of any form; the broker alone must understand them.
        pass
    return max(0.0, min(found, default=_DEFAULT_LIFETIME_S))


def _unreachable(url: str, reason: str) -> KafkaError:
    return KafkaError(f"{url} gives no token: {reason}", ErrorCode.NETWORK_EXCEPTION)
