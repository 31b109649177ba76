"""Judges the JSON web tokens of OAUTHBEARER, by the library PyJWT.

A token counts when a key of the identity provider has signed it, its time has begun and is not
over, issuer and audience are the expected ones, and it names a subject. Source: RFC 7519, KIP-768.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from storage_engine.broker.authentication.token_keys import TokenKey
from storage_engine.core.security.sasl_server import Authenticated, LogInRefusedError, shown

NAME_CHARACTERS_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must say."""

    audiences: Sequence[str] = ()
    """It must be for one of these; with none, it must not name an audience at all."""
    issuer: str | None = None
    principal_claim: str = "sub"
    clock_skew_s: int = 30


KeyOf = Callable[[str | None], TokenKey | None]
"""The key of that id (`kid`); for None the only key that there is; None when there is no such."""


class TokenCheck:
    """The check of one listener."""

    def __init__(self, rules: TokenRules, key_of: KeyOf) -> None:
        # Imported when a broker with OAUTHBEARER starts: it takes a tenth of a second.
        import jwt

        self._rules = rules
        self._key_of = key_of
        self._jwt = jwt

    def __call__(self, token: str) -> Authenticated:
        """LogInRefusedError, which repeats nothing of the token but its key's id."""
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
        claims: dict[str, Any] = self._jwt.decode(
            token,
            key=key.key,
            algorithms=list(key.algorithms),
            audience=list(self._rules.audiences) or None,
            issuer=self._rules.issuer,
            leeway=self._rules.clock_skew_s,
            options={"require": ["exp", "iat", self._rules.principal_claim]},
        )
        return claims


def _can_be_a_name(text: str) -> bool:
    # Names stand in logs.
    return 0 < len(text) <= NAME_CHARACTERS_MAX and text.isprintable()
