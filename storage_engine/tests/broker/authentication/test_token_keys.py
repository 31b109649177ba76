"""Tokens of an identity provider: which ones are believed, and where the keys come from."""

import base64
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from storage_engine.broker.authentication.token_keys import (
    KeySource,
    TokenCheck,
    TokenKeys,
    TokenKeysError,
    TokenRules,
    check_url,
    read_keys,
    shown_url,
)
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.sasl_server import LogInRefusedError
from storage_engine.net.event_loop_ports import LoopScheduler, SystemClock, ThreadBackground
from storage_engine.tests.net.serving import eventually, running_loop

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(private, key_id: str | None, **more) -> dict:
    algorithm = {rsa.RSAPrivateKey: "RS256", ec.EllipticCurvePrivateKey: "ES256"}
    name = next((n for kind, n in algorithm.items() if isinstance(private, kind)), "EdDSA")
    made = jwt.get_algorithm_by_name(name).to_jwk(private.public_key(), as_dict=True)
    made.pop("key_ops", None)
    return made | ({} if key_id is None else {"kid": key_id}) | more


JWKS = {
    "keys": [
        jwk(RSA, "rsa"),
        jwk(EC, "ec"),
        jwk(ED, "ed"),
        {"kty": "oct", "kid": "oct", "k": "c2VjcmV0"},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        {"kty": "new kind", "kid": "new"},
        "nonsense",
    ]
}


@pytest.fixture
def jwks_url(tmp_path) -> str:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(JWKS))
    return path.as_uri()


def claims(**changes) -> dict:
    now = int(time.time())
    made = {"sub": "alice", "iat": now, "exp": now + 100} | changes
    return {key: value for key, value in made.items() if value is not None}


def signed(private=RSA, key_id: str | None = "rsa", algorithm: str = "RS256", **changes) -> str:
    headers = {} if key_id is None else {"kid": key_id}
    return jwt.encode(claims(**changes), private, algorithm=algorithm, headers=headers)


@pytest.fixture
def check(jwks_url) -> TokenCheck:
    return TokenCheck(TokenRules(), read_keys(jwks_url).get)


def refusal(check: TokenCheck, token: str) -> str:
    with pytest.raises(LogInRefusedError) as caught:
        check(token)
    assert token not in str(caught.value) or not token
    return str(caught.value)


@pytest.mark.parametrize(
    ("private", "key_id", "algorithm"),
    [
        (RSA, "rsa", "RS256"),
        (RSA, "rsa", "RS512"),
        (RSA, "rsa", "PS256"),
        (EC, "ec", "ES256"),
        (ED, "ed", "EdDSA"),
    ],
)
def test_a_token_that_a_known_key_has_signed_is_believed(check, private, key_id, algorithm) -> None:
    expires_s = int(time.time()) + 50
    found = check(signed(private, key_id, algorithm, exp=expires_s))
    assert (found.name, found.expires_at_ms) == ("alice", expires_s * 1000)


def unsigned() -> str:
    return jwt.encode(claims(), None, algorithm="none", headers={"kid": "rsa"})


def signed_with_the_public_key() -> str:
    """As if it were a shared secret."""
    import hashlib
    import hmac

    def part(value: dict) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    pem = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    text = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'rsa'})}.{part(claims())}"
    signature = hmac.digest(pem, text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def in_a_while() -> int:
    return int(time.time()) + 1000


REFUSED: dict[str, Callable[[], str]] = {
    "empty": lambda: "",
    "no token": lambda: "a.b.c",
    "only dots": lambda: "....",
    "unsigned": unsigned,
    "signed with the public key": signed_with_the_public_key,
    "of another key": lambda: signed(
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
    ),
    "of a key under another's name": lambda: signed(EC, "rsa", "ES256"),
    "of an algorithm that its key does not have": lambda: signed(key_id="ed"),
    "of a shared secret": lambda: signed(key_id="oct"),
    "of an unknown key": lambda: signed(key_id="unknown"),
    "expired": lambda: signed(exp=int(time.time()) - 100),
    "without an end": lambda: signed(exp=None),
    "without a beginning": lambda: signed(iat=None),
    "not issued yet": lambda: signed(iat=in_a_while(), exp=2 * in_a_while()),
    "not valid yet": lambda: signed(nbf=in_a_while(), exp=2 * in_a_while()),
    "of nobody": lambda: signed(sub=None),
    "of an empty name": lambda: signed(sub=""),
    "of a blank name": lambda: signed(sub=" "),
    "of a name with lines": lambda: signed(sub="alice\nERROR all is lost"),
    "of a long name": lambda: signed(sub="a" * 2000),
    "for others": lambda: signed(aud="others"),
    "without end": lambda: signed(exp=float("inf")),
}
"""Made when they are checked: what was made when the tests were collected has expired by then, and
would be refused for that."""


@pytest.mark.parametrize("why", REFUSED)
def test_a_token_that_is_not_to_be_believed_is_refused(check, why: str) -> None:
    told = refusal(check, REFUSED[why]())
    assert ("ExpiredSignatureError" in told) == (why == "expired"), told


def test_issuer_audience_claim_and_skew_are_as_the_settings_say(jwks_url) -> None:
    rules = TokenRules(
        audiences=("kafka", "logs"), issuer="https://idp", principal_claim="email", clock_skew_s=60
    )
    check = TokenCheck(rules, read_keys(jwks_url).get)
    good = {"aud": ["x", "logs"], "iss": "https://idp", "email": "alice@x"}
    assert check(signed(**good, exp=int(time.time()) - 30)).name == "alice@x"
    for wrong in ({"aud": "x"}, {"aud": None}, {"iss": "https://other"}, {"email": 7}):
        refusal(check, signed(**{**good, **wrong}))


def test_a_key_that_names_its_algorithm_is_taken_for_no_other(tmp_path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [jwk(RSA, "rsa", alg="RS512")]}))
    check = TokenCheck(TokenRules(), read_keys(path.as_uri()).get)
    assert check(signed(algorithm="RS512")).name == "alice"
    refusal(check, signed(algorithm="RS256"))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AAAA"}]}', "[" * 99_999],
)
def test_what_is_no_jwks_is_told_in_one_line(tmp_path, text: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(text)
    with pytest.raises(TokenKeysError, match=r"jwks.endpoint.url=file:.* can't be read") as caught:
        read_keys(path.as_uri())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "jwks.json", "ftp://host/x", "https://", "file:", "ldap://h/"])
def test_a_url_where_no_keys_can_be_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(ConfigError, match="must be a URL"):
        check_url(url, key="k")


def test_what_is_secret_in_a_url_is_not_shown() -> None:
    assert shown_url("https://user:hunter2@host:1/path?key=hunter2") == "https://host:1/path"


class Provider(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        server.asked += 1  # type: ignore[attr-defined]
        body = json.dumps(server.jwks).encode()  # type: ignore[attr-defined]
        self.send_response(200 if server.jwks else 503)  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def provider() -> Iterator[http.server.HTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.jwks = {"keys": [jwk(RSA, "rsa")]}  # type: ignore[attr-defined]
    server.asked = 0  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_keys_of_a_url_are_read_again_after_failures_and_for_unknown_ones(
    provider, monkeypatch
) -> None:
    monkeypatch.setattr("storage_engine.broker.authentication.token_keys.UNKNOWN_KEY_PAUSE_MS", 200)
    url = f"http://127.0.0.1:{provider.server_port}/keys"
    first, provider.jwks = provider.jwks, None
    with running_loop("uvloop") as thread:
        background = ThreadBackground(thread.loop)
        keys = TokenKeys(
            KeySource(url=url, retry_ms=10, retry_max_ms=20),
            scheduler=LoopScheduler(thread.loop),
            clock=SystemClock(),
            background=background,
        )
        thread.call(keys.start)
        eventually(lambda: provider.asked >= 3)
        assert thread.call(lambda: keys.key("rsa")) is None
        provider.jwks = first
        eventually(lambda: thread.call(lambda: keys.key("rsa")) is not None)
        assert thread.call(lambda: keys.key(None)) is not None, "the only one"
        provider.jwks = {"keys": [jwk(RSA, "rsa"), jwk(EC, "ec")]}
        eventually(lambda: thread.call(lambda: keys.key("ec")) is not None)
        assert thread.call(lambda: keys.key(None)) is None
        asked = provider.asked
        for _ in range(20):
            thread.call(lambda: keys.key("unknown"))
        assert provider.asked <= asked + 2, "a stranger can't make the broker ask all the time"
        provider.jwks = None
        time.sleep(0.25)
        thread.call(lambda: keys.key("unknown"))
        eventually(lambda: provider.asked > asked)
        assert thread.call(lambda: keys.key("rsa")) is not None, "those that were read last count"
        thread.call(keys.close)
        background.close()
