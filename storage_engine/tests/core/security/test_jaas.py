"""`sasl.jaas.config` as Java's users write it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.jaas import MAX_LENGTH, parse_jaas

KEY = "sasl.jaas.config"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def read(text):
    entry = parse_jaas(text, key=KEY)
    return entry.module, dict(entry.options)


@pytest.mark.parametrize(
    "text,options",
    [
        ('username="a" password="b";', {"username": "a", "password": "b"}),
        ("username='a'\n  password='b' ;\n", {"username": "a", "password": "b"}),
        ("username=a password=b-c_d.e;", {"username": "a", "password": "b-c_d.e"}),
        (r'password="a\"b\\c";', {"password": 'a"b\\c'}),
        (r'password="\101\n\z";', {"password": "A\nz"}),
        ('password="a;b=c //d";', {"password": "a;b=c //d"}),
        ('/* who */ username="a"; // end', {"username": "a"}),
        ('user_bob="x" user_o.k="y";', {"user_bob": "x", "user_o.k": "y"}),
        ('password="";', {"password": ""}),
        ("serviceName=kafka debug=true;", {"serviceName": "kafka", "debug": "true"}),
        (";", {}),
    ],
)
def test_options_are_read_as_java_reads_them(text, options):
    assert read(f"{SCRAM} required {text}") == ("ScramLoginModule", options)


def test_a_shaded_module_is_the_same_module():
    assert read(f"kafkashaded.{SCRAM} Required;")[0] == "ScramLoginModule"


@pytest.mark.parametrize(
    "text,reason",
    [
        ("", "begin with a login module"),
        (SCRAM, "begin with a login module"),
        (f'{SCRAM} username="a";', "begin with a login module"),
        (f'{SCRAM} required username="a"', "semicolon"),
        (f'{SCRAM} required username="a"; {SCRAM} required;', "more than one login module"),
        (f'{SCRAM} required password="hid"den";', "option"),
        (f"{SCRAM} required password=hid/den;", "belongs to no option"),
        (f'{SCRAM} required password="hidden;', "belongs to no option"),
        (f'{SCRAM} required password "hidden";', "of the form"),
        (f'{SCRAM} required hidden="hidden" hidden="x";', "twice"),
        (f'{SCRAM} required "hid den"="x" "hid den"="x";', "twice"),
        ("x" * (MAX_LENGTH + 1), "more than"),
    ],
)
def test_what_is_wrong_is_said_without_what_was_written(text, reason):
    with pytest.raises(ConfigError, match=reason) as raised:
        read(text)
    message = str(raised.value)
    assert message.startswith(KEY)
    assert "hid den" not in message
    assert "hid" not in message or "'hidden'" in message


def test_the_options_are_not_in_the_repr():
    assert "hidden" not in repr(parse_jaas(f'{SCRAM} required password="hidden";', key=KEY))


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,10}", fullmatch=True),
        st.text(st.characters(codec="utf-8"), max_size=20),
        max_size=4,
    )
)
def test_whatever_a_value_is_it_comes_back(options):
    quoted = {
        name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in options.items()
    }
    text = " ".join(f'{name}="{value}"' for name, value in quoted.items())
    assert read(f"{SCRAM} required {text};") == ("ScramLoginModule", options)


@given(st.text(alphabet="ab.=;\"'\\/* \n#reqid", max_size=80))
def test_whatever_is_written_is_read_or_refused(text):
    with contextlib.suppress(ConfigError):
        parse_jaas(text, key=KEY)
        return
    with contextlib.suppress(ConfigError):
        parse_jaas(f"{SCRAM} required {text}", key=KEY)
