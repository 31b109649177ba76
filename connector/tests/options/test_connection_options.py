"""The options of security of the format: inline, or in a file that each worker reads."""

import pickle

import pytest

from connector.errors import OptionError
from connector.options.sink_options import parse_sink_options
from connector.options.source_options import parse_source_options
from connector.tests.options.parsed import SERVERS, assert_refused
from connector.tests.options.parsed import source as parsed_source
from storage_engine.core.security.security_protocol import SecurityProtocol

PLACE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
LOG_IN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
    "kafka.sasl.jaas.config": "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule "
    'required username="alice" password="hidden-pw";',
    "kafka.ssl.truststore.location": "/etc/ca.pem",
    "kafka.ssl.truststore.type": "PEM",
}


def source(**options):
    return parse_source_options({**PLACE, **options})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
        "sasl.password=hidden-pw\nrequest.timeout.ms=1\n"
    )
    return path


def test_options_as_sparks_users_write_them_are_understood():
    security = source(**LOG_IN).connection.client_security()
    assert security.protocol is SecurityProtocol.SASL_SSL
    assert security.sasl.user == "alice"
    assert security.tls.truststore_location == "/etc/ca.pem"


def test_a_query_with_inline_secrets_is_warned_of_them():
    notes = source(**LOG_IN).notes
    assert len(notes) == 1
    assert "'sasl.jaas.config' is a secret" in notes[0]
    assert "client.config.file" in notes[0]


def test_no_secret_is_in_what_is_shown():
    options = source(**LOG_IN)
    assert "hidden-pw" not in repr(options)
    assert "hidden-pw" not in str(options.notes)


def test_what_goes_to_workers_names_the_file_and_has_no_secret(file):
    options = source(**{"client.config.file": str(file)})
    sent = pickle.dumps(options)
    assert b"hidden-pw" not in sent
    assert b"alice" not in sent
    assert str(file).encode() in sent
    assert options.notes == ()
    security = pickle.loads(sent).connection.client_security()
    assert security.sasl.password.reveal() == "hidden-pw"


def test_an_option_without_a_secret_overrides_the_file(file):
    options = source(**{"client.config.file": str(file), "kafka.sasl.mechanism": "SCRAM-SHA-512"})
    assert options.connection.client_security().sasl.mechanism == "SCRAM-SHA-512"


def test_each_worker_reads_the_file_of_its_own(file):
    connection = source(**{"client.config.file": str(file)}).connection
    file.write_text(file.read_text().replace("alice", "bob"))
    assert connection.client_security().sasl.user == "bob"


def test_the_sink_takes_the_same(file):
    options = parse_sink_options(
        {"kafka.bootstrap.servers": "a:1", "client.config.file": str(file)}
    )
    assert options.connection.client_security().sasl.user == "alice"


@pytest.mark.parametrize(
    "options,message",
    [
        ({"kafka.sasl.username": "alice"}, r"security\.protocol is not"),
        ({**LOG_IN, "kafka.sasl.password": "hidden-pw"}, "both given; leave one of them out"),
        ({**LOG_IN, "kafka.sasl.mechanism": "PLAIN"}, "login module in sasl"),
        ({"client.config.file": "/nowhere/at.all"}, r"/nowhere/at\.all can't be read"),
    ],
)
def test_a_mistake_is_one_line_without_the_secret(options, message):
    with pytest.raises(OptionError, match=message) as raised:
        source(**options)
    assert "hidden-pw" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_secret_beside_the_file_is_refused(file):
    with pytest.raises(OptionError, match="move it into the file") as raised:
        source(**{"client.config.file": str(file), "kafka.sasl.password": "hidden-pw"})
    assert "hidden-pw" not in str(raised.value)


def test_the_file_is_checked_with_the_options(file):
    file.write_text("security.protocol=SSL\nssl.trustore.location=/x\n")
    with pytest.raises(OptionError, match=r"'client\.config\.file': .*did you mean"):
        source(**{"client.config.file": str(file)})


def test_missing_servers_and_a_missing_subscription_are_named():
    with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers' must be set"):
        parse_source_options({"subscribe": "t"})
    with pytest.raises(OptionError, match="not none"):
        parse_source_options(SERVERS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.bootstrap.servers": "localhost"}, "must be host:port"),
        ({"kafka.bootstrap.servers": "h:0"}, "must be host:port"),
        ({"kafka.security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
    ],
)
def test_a_connection_that_is_not_possible_is_one_line(options, message):
    assert_refused(parsed_source, options, message)
