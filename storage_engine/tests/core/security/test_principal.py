import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.principal import ANONYMOUS, Principal, PrincipalMapping


def test_a_principal_is_read_and_written() -> None:
    principal = Principal.parse(" User:CN=app,O=Example:1 ", key="super.users")
    assert principal == Principal("CN=app,O=Example:1")
    assert str(principal) == "User:CN=app,O=Example:1"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_a_principal_without_kind_or_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"super\.users=.*must be kind:name, for example User:"):
        Principal.parse(text, key="super.users")


KIP = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("cn=Other.User,o=x", "other.user"),
        ("OU=no name", "OU=no name"),
    ],
)
def test_the_first_rule_that_fits_counts(subject: str, name: str) -> None:
    assert PrincipalMapping.parse(KIP).name_of(subject) == name


def test_without_rules_the_subject_is_the_name() -> None:
    for text in ("", "DEFAULT", " DEFAULT "):
        assert PrincipalMapping.parse(text).name_of("CN=a,O=b") == "CN=a,O=b"
    assert PrincipalMapping().name_of("") is None


def test_where_no_rule_fits_there_is_no_principal() -> None:
    mapping = PrincipalMapping.parse("RULE:^CN=(a+)$/$1/U")
    assert mapping.name_of("CN=aa") == "AA"
    assert mapping.name_of("CN=aab") is None


def test_slashes_and_dollars_may_be_escaped() -> None:
    mapping = PrincipalMapping.parse(r"RULE:^CN=a\/(.*)$/x\/$1\$1/, DEFAULT")
    assert mapping.name_of("CN=a/b") == "x/b$1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("RULE:a", "must be DEFAULT or RULE:pattern/replacement/"),
        ("RULE:a/b/X", "must be DEFAULT or RULE:pattern/replacement/"),
        ("DEFAULT,lower", "must be DEFAULT or RULE:pattern/replacement/"),
        ("RULE:(/b/", "the pattern ( is none"),
        ("RULE:a/$1/", "names $1, but the pattern a has 0 groups"),
    ],
)
def test_what_is_no_rule_is_told(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PrincipalMapping.parse(text)
    assert str(caught.value).startswith("ssl.principal.mapping.rules")
    assert reason in str(caught.value)
