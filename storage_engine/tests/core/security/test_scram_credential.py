"""Credentials of SCRAM users, as they stand in ZooKeeper."""

import hashlib

import pytest

from storage_engine.core.security.scram_credential import (
    ScramCredential,
    ScramCredentialError,
    ScramMechanism,
)

SALT = b"salt" * 4
GOOD = ScramCredential.of_password(
    ScramMechanism.SHA_256, "hunter2", salt=SALT, iterations=4096
).format()


@pytest.mark.parametrize("mechanism", list(ScramMechanism), ids=lambda each: each.value)
def test_a_credential_is_read_as_it_was_written(mechanism: ScramMechanism) -> None:
    made = ScramCredential.of_password(mechanism, "hunter2", salt=SALT, iterations=4097)
    assert ScramCredential.parse(mechanism, made.format()) == made
    assert made.format().startswith("salt=c2FsdHNhbHRzYWx0c2FsdA==,stored_key=")
    assert made.format().endswith(",iterations=4097")


@pytest.mark.parametrize("mechanism", list(ScramMechanism), ids=lambda each: each.value)
def test_a_salted_password_makes_the_same_credential(mechanism: ScramMechanism) -> None:
    name = mechanism.hash(b"").name
    salted = hashlib.pbkdf2_hmac(name, b"hunter2", SALT, 4096)
    assert ScramCredential.of_salted_password(
        mechanism, salted, salt=SALT, iterations=4096
    ) == ScramCredential.of_password(mechanism, "hunter2", salt=SALT, iterations=4096)


def test_it_is_that_of_the_example_in_rfc_7677() -> None:
    """The example's server signature follows from the server key."""
    import hmac
    from base64 import b64decode, b64encode

    made = ScramCredential.of_password(
        ScramMechanism.SHA_256,
        "pencil",
        salt=b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="),
        iterations=4096,
    )
    message = (
        "n=user,r=rOprNGfwEbeRWgbNEkqO,"
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = hmac.digest(made.server_key, message.encode(), "sha256")
    assert b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=AAAA",
        GOOD.replace("salt=c2FsdHNhbHRzYWx0c2FsdA==", "salt="),
        GOOD + ",salt=AAAA",
        GOOD + ",more=1",
        GOOD.replace("salt=c2Fs", "salt=!!!!"),
        GOOD.replace("iterations=4096", "iterations=4095"),
        GOOD.replace("iterations=4096", "iterations=-4096"),
        GOOD.replace("iterations=4096", "iterations=40960000000"),
        GOOD.replace("stored_key=", "stored_key=AAAA"),
    ],
)
def test_what_is_not_of_the_form_is_told_without_what_it_says(text: str) -> None:
    with pytest.raises(ScramCredentialError) as caught:
        ScramCredential.parse(ScramMechanism.SHA_256, text)
    assert "stored_key=A" not in str(caught.value)
    assert "c2Fs" not in str(caught.value)


def test_a_credential_of_another_mechanism_is_none_of_this_one() -> None:
    with pytest.raises(ScramCredentialError, match="64 bytes of SCRAM-SHA-512"):
        ScramCredential.parse(ScramMechanism.SHA_512, GOOD)


def test_no_credential_shows_its_keys() -> None:
    made = ScramCredential.parse(ScramMechanism.SHA_256, GOOD)
    assert repr(made) == "ScramCredential(iterations=4096)"


def test_a_password_with_a_control_character_is_refused_and_not_repeated() -> None:
    with pytest.raises(ScramCredentialError) as caught:
        ScramCredential.of_password(
            ScramMechanism.SHA_256, "hunter\x07", salt=SALT, iterations=4096
        )
    assert "hunter" not in str(caught.value)
