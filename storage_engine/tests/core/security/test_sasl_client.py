"""The client's side of SASL, against scramp's server and against hostile ones."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramMechanism

from storage_engine.core.errors import AuthenticationError, ConfigError
from storage_engine.core.security.sasl_client import (
    MAX_CHALLENGE_BYTES,
    MAX_ITERATIONS,
    MECHANISMS,
    PLAIN,
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    OAuthBearerClient,
    password_client,
)

SECRET = 's3cret,="\\ pass'


def scram_server(mechanism, user, *, password=SECRET, iterations=4096):
    scram = ScramMechanism(mechanism)
    known = scram.make_auth_info(password, iteration_count=iterations)
    return scram.make_server(lambda name: known if name == user else None)


def server_first(client, *, iterations="4096", nonce=None, salt=b"0123456789abcdef"):
    """Return the answer of a server that makes its own rules."""
    begun = client.respond(None).decode()
    theirs = begun.partition("r=")[2]
    text = f"r={theirs if nonce is None else nonce}server,s={base64.b64encode(salt).decode()}"
    return f"{text},i={iterations}".encode()


def test_plain_is_one_message_and_done_once_the_server_has_taken_it():
    client = password_client(PLAIN, "alice", SECRET)
    assert client.respond(None) == b"\0alice\0" + SECRET.encode()
    assert not client.is_done
    assert client.respond(b"") == b""
    assert client.is_done


@pytest.mark.parametrize("username,password", [("", "p"), ("u", ""), ("a\0b", "p"), ("a", "p\0q")])
def test_plain_refuses_what_would_shift_its_fields(username, password):
    with pytest.raises(ConfigError, match="PLAIN needs a user and a password"):
        password_client(PLAIN, username, password)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "o=hara,x", "ünï"])
def test_scram_ends_when_both_have_proven_what_they_know(mechanism, user):
    server, client = scram_server(mechanism, user), password_client(mechanism, user, SECRET)
    server.set_client_first(client.respond(None).decode())
    final = client.respond(server.get_server_first().encode())
    server.set_client_final(final.decode())
    assert not client.is_done
    assert client.respond(server.get_server_final().encode()) == b""
    assert client.is_done


def test_a_server_that_does_not_know_the_user_is_not_believed():
    client = password_client(SCRAM_SHA_256, "alice", SECRET)
    client.respond(server_first(client))
    proof = base64.b64encode(bytes(32)).decode()
    with pytest.raises(AuthenticationError, match="signature doesn't match"):
        client.respond(f"v={proof}".encode())
    assert not client.is_done


def test_a_server_cannot_make_the_client_work_for_long():
    client = password_client(SCRAM_SHA_256, "alice", SECRET)
    with pytest.raises(AuthenticationError, match=f"asks for {MAX_ITERATIONS + 1} iterations"):
        client.respond(server_first(client, iterations=MAX_ITERATIONS + 1))


@pytest.mark.parametrize(
    "broken",
    [
        {"nonce": "another"},
        {"nonce": ""},
        {"iterations": "0"},
        {"iterations": "many"},
        {"iterations": "99999999999999999999"},
        {"salt": b""},
    ],
)
def test_a_first_message_that_breaks_the_rules_is_refused(broken):
    client = password_client(SCRAM_SHA_256, "alice", SECRET)
    with pytest.raises(AuthenticationError):
        client.respond(server_first(client, **broken))


@pytest.mark.parametrize("hostile", [b"", b"e=other-error", b"\xff", b"r=x", bytes(70_000)])
def test_a_server_that_says_something_else_is_refused(hostile):
    client = password_client(SCRAM_SHA_256, "alice", SECRET)
    client.respond(None)
    with pytest.raises(AuthenticationError):
        client.respond(hostile)


@given(st.lists(st.binary(max_size=60), max_size=4), st.sampled_from(SCRAM_MECHANISMS))
def test_no_server_makes_the_client_fail_otherwise_or_believe(challenges, mechanism):
    client = password_client(mechanism, "alice", SECRET)
    client.respond(None)
    for challenge in challenges:
        try:
            client.respond(challenge)
        except AuthenticationError:
            break
    assert not client.is_done


def test_a_challenge_has_a_bound():
    client = password_client(PLAIN, "alice", SECRET)
    client.respond(None)
    with pytest.raises(AuthenticationError, match="challenge has 65537 bytes"):
        client.respond(bytes(MAX_CHALLENGE_BYTES + 1))


def test_a_token_goes_with_its_extensions():
    client = OAuthBearerClient("abc.def.", user="app", extensions={"tenant": "t 1"})
    assert client.respond(None) == b"n,,\x01auth=Bearer abc.def.\x01tenant=t 1\x01\x01"
    assert client.respond(b"") == b""
    assert client.is_done


def test_a_token_that_is_refused_is_answered_with_one_byte():
    client = OAuthBearerClient("abc", user="app")
    client.respond(None)
    assert client.respond(b'{"status":"invalid_token"}') == b"\x01"
    assert not client.is_done
    with pytest.raises(AuthenticationError, match="invalid_token"):
        client.respond(b"")


@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=x", "a\n", "ä"])
def test_a_token_cannot_break_its_message(token):
    with pytest.raises(ConfigError, match="no bearer token"):
        OAuthBearerClient(token, user="app")


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a b": "x"}, {"a": "\x01"}, {"a": ""}])
def test_an_extension_cannot_break_its_message(extensions):
    with pytest.raises(ConfigError, match="extension"):
        OAuthBearerClient("abc", user="app", extensions=extensions)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_secret_is_in_what_is_shown(mechanism):
    if mechanism in (PLAIN, *SCRAM_MECHANISMS):
        client = password_client(mechanism, "alice", "hidden-pw")
    else:
        client = OAuthBearerClient("hidden-pw", user="alice")
    client.respond(None)
    assert "hidden-pw" not in repr(client)
    assert "alice" in repr(client)
