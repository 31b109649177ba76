import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.principal import ANONYMOUS, Principal


def test_a_principal_is_read_and_written() -> None:
    principal = Principal.parse(" User:CN=app,O=Example:1 ", key="super.users")
    assert principal == Principal("CN=app,O=Example:1")
    assert str(principal) == "User:CN=app,O=Example:1"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_a_principal_without_kind_or_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"super\.users=.*must be kind:name, for example User:"):
        Principal.parse(text, key="super.users")
