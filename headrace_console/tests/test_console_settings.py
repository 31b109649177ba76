"""Settings that can't work are told when a console starts, in one line with the remedy."""

import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.server import ConsoleServer
from storage_engine.client.schema_registry_http import RegistryAddress
from storage_engine.client.security.client_security import ClientSasl, ClientSecurity
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import Secret, SecurityProtocol

LOG_IN = ClientSecurity(
    protocol=SecurityProtocol.SASL_PLAINTEXT,
    sasl=ClientSasl(mechanism="SCRAM-SHA-512", username="", password=None),
)
SERVERS = "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bootstrap_servers": "nonsense"}, "'nonsense', which is not host:port"),
        ({"bootstrap_servers": ","}, "bootstrap.servers is empty"),
        (
            {"allowed_hosts": ("console.example:8480", "https://x/")},
            "'https://x/' is not HOST:PORT",
        ),
        ({"allowed_hosts": (":::",)}, "':::' is not HOST:PORT"),
        ({"trusted_proxies": ("10.0.0.1", "proxy")}, "'proxy' is not an IP address"),
        ({"address": "127.0.0.2.example.invalid"}, "can be reached by others"),
        (
            {"security": LOG_IN, "registry": RegistryAddress(urls=("http://registry:8081",))},
            "--registry http://registry:8081 would get the passwords of users unencrypted",
        ),
        (
            {
                "security": LOG_IN,
                "registry": RegistryAddress(
                    urls=("https://registry:8081",), user_info=Secret("a:b")
                ),
            },
            "--registry has a user in its URL; remove it",
        ),
    ],
)
def test_settings_that_can_not_work_are_refused_before_a_page_is_served(given, words) -> None:
    with pytest.raises(ConfigError, match=words):
        ConsoleServer(ConsoleSettings(**{"bootstrap_servers": SERVERS, "port": 0} | given))
