"""Security protocols by their names, and secrets that are not shown."""

import pytest

from storage_engine.core.security.security_protocol import Secret, SecurityProtocol


@pytest.mark.parametrize(
    ("text", "tls", "sasl"),
    [
        ("PLAINTEXT", False, False),
        ("ssl", True, False),
        (" Sasl_Plaintext ", False, True),
        ("SASL_SSL", True, True),
    ],
)
def test_a_protocol_is_found_by_its_name(text, tls, sasl):
    protocol = SecurityProtocol.named(text)
    assert protocol is not None
    assert (protocol.uses_tls, protocol.uses_sasl) == (tls, sasl)


@pytest.mark.parametrize("text", ["", "TLS", "named", "__class__"])
def test_there_is_no_other_protocol(text):
    assert SecurityProtocol.named(text) is None


def test_a_secret_is_shown_by_nothing_and_compares_by_its_text():
    secret = Secret("hunter2")
    assert f"{secret} {secret!r} {[secret]}" == "[hidden] [hidden] [[hidden]]"
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2") != Secret("other")
    assert secret != "hunter2"
    assert not Secret("")
