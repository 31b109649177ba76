"""The broker's side of SASL: who is let in, who is not, and what a stranger learns."""

from base64 import b64decode
from collections.abc import Callable

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.security.sasl_client import OAuthBearerClient, password_client
from storage_engine.core.security.sasl_server import (
    TOKEN_BYTES_MAX,
    Authenticated,
    FoundCredential,
    LogInRefusedError,
    OAuthBearerServer,
    PlainServer,
    SaslServerMechanism,
    ScramDecoys,
    ScramServer,
)
from storage_engine.core.security.scram_credential import ScramCredential, ScramMechanism

SALT = b"a salt of some length"
NONCE = "not+random"
DECOYS = ScramDecoys(b"key")
scram = pytest.mark.parametrize("mechanism", list(ScramMechanism), ids=lambda each: each.value)


def is_alices(user: str, password: str) -> bool:
    return (user, password) == ("alice", "hunter2")


def scram_server(mechanism: ScramMechanism, nonce: str = NONCE, salt: bytes = SALT) -> ScramServer:
    """Knows alice, whose password is hunter2."""
    known = ScramCredential.of_password(mechanism, "hunter2", salt=salt, iterations=4096)

    def credential_of(user: str) -> FoundCredential:
        if user == "alice":
            return FoundCredential(known, True)
        return FoundCredential(DECOYS.credential(mechanism, user, salt_bytes=len(salt)), False)

    return ScramServer(mechanism, credential_of, nonce)


def log_in(server: SaslServerMechanism, name: str, user: str, password: str) -> list[bytes]:
    """The answers; raises what the server raises."""
    client = password_client(name, user, password)
    answers: list[bytes] = []
    token = client.respond(None)
    while server.authenticated is None:
        answers.append(server.respond(token))
        token = client.respond(answers[-1])
    assert client.is_done
    return answers


def refusal(server: SaslServerMechanism, *tokens: bytes) -> str:
    with pytest.raises(LogInRefusedError) as caught:
        for token in tokens:
            server.respond(token)
    assert server.authenticated is None
    return str(caught.value)


# PLAIN.


def test_plain_lets_in_who_has_the_password() -> None:
    server = PlainServer(is_alices)
    log_in(server, "PLAIN", "alice", "hunter2")
    assert server.authenticated == Authenticated(name="alice")


def test_a_client_may_name_itself_as_the_one_it_acts_for() -> None:
    server = PlainServer(is_alices)
    assert server.respond(b"alice\0alice\0hunter2") == b""
    assert server.authenticated is not None
    assert "another user" in refusal(PlainServer(is_alices), b"bob\0alice\0hunter2")


@pytest.mark.parametrize(
    "token",
    [b"", b"alice", b"\0alice", b"\0alice\0", b"\0\0hunter2", b"\0a\0b\0c", b"\0\xff\0x"],
)
def test_plain_refuses_what_is_not_of_its_form(token: bytes) -> None:
    refusal(PlainServer(lambda user, password: True), token)


def test_a_wrong_password_and_an_unknown_user_are_refused_alike() -> None:
    texts = {
        refusal(PlainServer(is_alices), b"\0alice\0wrong"),
        refusal(PlainServer(is_alices), b"\0nobody\0hunter2"),
    }
    assert len(texts) == 1
    assert "wrong" not in texts.pop().replace("the password is wrong", "")


# SCRAM.


@scram
def test_scram_lets_in_who_has_the_password_and_shows_that_it_knows_the_user(mechanism) -> None:
    server = scram_server(mechanism)
    log_in(server, mechanism.value, "alice", "hunter2")
    assert server.authenticated == Authenticated(name="alice")


@scram
@pytest.mark.parametrize("salt", [b"s", b"salt", b"eleven byte", b"twelve bytes", bytes(256)])
def test_salts_of_any_length_are_sent_as_they_are(mechanism, salt) -> None:
    """As Kafka's tools and librdkafka may write them."""
    server = scram_server(mechanism, salt=salt)
    challenge = log_in(server, mechanism.value, "alice", "hunter2")[0]
    assert b64decode(challenge.split(b",")[1].removeprefix(b"s=")) == salt
    assert server.authenticated == Authenticated(name="alice")
    unknown = scram_server(mechanism, salt=salt).respond(b"n,,n=nobody,r=abc")
    assert len(b64decode(unknown.split(b",")[1].removeprefix(b"s="))) == len(salt)


@scram
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "hunter2")])
def test_a_wrong_password_and_an_unknown_user_take_the_same_path(mechanism, user, password) -> None:
    server = scram_server(mechanism)
    client = password_client(mechanism.value, user, password)
    challenge = server.respond(client.respond(None)).decode()
    assert ",i=4096" in challenge
    proof = client.respond(challenge.encode())
    assert refusal(server, proof) == "the exchange failed: invalid-proof"
    assert server.claimed == user


@scram
def test_a_user_that_does_not_exist_has_a_salt_that_stays(mechanism) -> None:
    def salt_of(user: str) -> str:
        first = scram_server(mechanism).respond(f"n,,n={user},r=abc".encode()).decode()
        return first.split(",")[1]

    assert salt_of("nobody") == salt_of("nobody") != salt_of("another")
    assert len(salt_of("nobody")) == len(salt_of("alice"))


def test_a_decoy_depends_on_the_key_that_brokers_share() -> None:
    one, same, other = (
        ScramDecoys(key).credential(ScramMechanism.SHA_256, "nobody", salt_bytes=100)
        for key in (b"1", b"1", b"2")
    )
    assert one == same != other
    assert len(one.salt) == 100


def answers_of_nonce(server: ScramServer, password: str, nonce: Callable[[str, str], str]) -> bytes:
    """The last answer to a client that makes its nonce of its own and of both."""
    client = scramp.ScramClient(["SCRAM-SHA-256"], "alice", password, c_nonce="own")
    client.set_server_first(server.respond(client.get_client_first().encode()).decode())
    client.nonce = type(client.nonce)(nonce("own", str(client.nonce)))
    answer = server.respond(client.get_client_final().encode())
    client.set_server_final(answer.decode())
    return answer


def test_a_client_may_put_its_nonce_twice_as_older_ones_of_librdkafka_do() -> None:
    server = scram_server(ScramMechanism.SHA_256)
    assert answers_of_nonce(server, "hunter2", lambda own, both: own + both)
    assert server.authenticated == Authenticated(name="alice")


@pytest.mark.parametrize(
    ("password", "nonce"),
    [
        ("wrong", lambda own, both: own + both),
        ("hunter2", lambda own, both: own + own + both),
        ("hunter2", lambda own, both: "x" + both),
        ("hunter2", lambda own, both: both + "x"),
        ("hunter2", lambda own, both: own + own),
    ],
)
def test_no_other_nonce_is_taken_nor_a_wrong_proof(password, nonce) -> None:
    server = scram_server(ScramMechanism.SHA_256)
    with pytest.raises(LogInRefusedError):
        answers_of_nonce(server, password, nonce)
    assert server.authenticated is None


@scram
def test_a_proof_is_of_use_for_one_log_in_only(mechanism) -> None:
    client = password_client(mechanism.value, "alice", "hunter2")
    first = client.respond(None)
    recorded = client.respond(scram_server(mechanism, "one").respond(first))
    assert "other-error" in refusal(scram_server(mechanism, "two"), first, recorded)


@scram
def test_names_with_commas_and_equals_signs_are_names(mechanism) -> None:
    server = scram_server(mechanism)
    server.respond(b"n,,n=a=2Cb=3Dc,r=abc")
    assert server.claimed == "a,b=c"


@scram
@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff",
        b"n,,",
        b"y,,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=a=2,r=abc",
        b"n,,n=,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=" + b"a" * TOKEN_BYTES_MAX + b",r=abc",
        b"n,,n=" + b"a" * 300 + b",r=abc",
    ],
)
def test_scram_refuses_what_is_not_of_its_form(mechanism, token: bytes) -> None:
    refusal(scram_server(mechanism), token)


@scram
def test_nothing_is_taken_after_the_end(mechanism) -> None:
    server = scram_server(mechanism)
    log_in(server, mechanism.value, "alice", "hunter2")
    with pytest.raises(LogInRefusedError, match="after it has logged in"):
        server.respond(b"x")


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3), st.booleans())
def test_whatever_comes_scram_answers_or_refuses(tokens: list[bytes], is_first_right: bool) -> None:
    server = scram_server(ScramMechanism.SHA_256)
    if is_first_right:
        server.respond(b"n,,n=alice,r=abc")
    with pytest.raises(LogInRefusedError):
        for token in [*tokens, b"end", b"end"]:
            server.respond(token)
    assert server.authenticated is None


@given(st.text(alphabet="cnrpsvime=,bws+/xyz0", max_size=60), st.booleans())
def test_whatever_looks_like_scram_is_answered_or_refused(text: str, is_final: bool) -> None:
    server = scram_server(ScramMechanism.SHA_512)
    tokens = [b"n,,n=alice,r=abc", f"c=biws,r=abc{NONCE},p={text}".encode(), b"x"]
    with pytest.raises(LogInRefusedError):
        for token in tokens if is_final else [f"n,,{text}".encode(), b"x", b"x"]:
            server.respond(token)


# OAUTHBEARER.


def check(token: str) -> Authenticated:
    if token != "good":
        raise LogInRefusedError("it is bad")
    return Authenticated(name="alice", expires_at_ms=1234)


def test_a_good_token_lets_in() -> None:
    server = OAuthBearerServer(check)
    client = OAuthBearerClient("good", user="alice", extensions={"trace": "1"})
    assert server.respond(client.respond(None)) == b""
    assert server.authenticated == Authenticated(name="alice", expires_at_ms=1234)


def test_a_bad_token_is_refused_after_the_client_has_heard_of_it_and_not_why() -> None:
    server = OAuthBearerServer(check)
    client = OAuthBearerClient("bad", user="alice")
    answer = server.respond(client.respond(None))
    assert b"invalid_token" in answer
    assert b"it is bad" not in answer
    assert refusal(server, client.respond(answer)) == "it is bad"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff",
        b"n,,\x01auth=Bearer good",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer good\x01\x01",
        b"n,x=alice,\x01auth=Bearer good\x01\x01",
        b"p,,\x01auth=Bearer good\x01\x01",
        b"n,a=bob,\x01auth=Bearer good\x01\x01",
    ],
)
def test_oauth_refuses_what_is_not_of_its_form(token: bytes) -> None:
    refusal(OAuthBearerServer(check), token)


@given(st.binary(max_size=300))
def test_whatever_comes_oauth_answers_or_refuses(token: bytes) -> None:
    server = OAuthBearerServer(check)
    with pytest.raises(LogInRefusedError):
        server.respond(token)
        server.respond(b"\x01")
