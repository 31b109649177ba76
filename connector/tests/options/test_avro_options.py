"""The options of Avro and of a schema registry."""

import pickle

import pytest

from connector.errors import OptionError
from connector.options.avro_options import OnDamage, SubjectNames
from connector.tests.options.parsed import assert_refused, one_line, sink, source

AVRO = {"value__format": "avro", "schema__registry__url": "http://r:8081"}


def test_without_them_values_are_bytes():
    assert source().avro is None
    assert source(value__format="binary").avro is None
    assert sink(topic="t").avro is None


def test_defaults_of_the_source():
    avro = source(**AVRO).avro
    assert (avro.mode, avro.may_evolve, avro.key) == (OnDamage.FAILFAST, False, None)
    assert (avro.value.subject, avro.value.version) == (None, None)
    address = avro.registry.address()
    assert (address.urls, address.user_info, address.patience_ms) == (
        ("http://r:8081",),
        None,
        60_000,
    )


def test_all_of_the_source():
    avro = source(
        **AVRO,
        key__format="AVRO",
        mode="Permissive",
        value__schema__evolution="restart",
        value__schema__version="3",
        key__schema__version="latest",
        value__schema__subject="s",
    ).avro
    assert (avro.mode, avro.may_evolve) == (OnDamage.PERMISSIVE, True)
    assert (avro.value.subject, avro.value.version) == ("s", 3)
    assert (avro.key.subject, avro.key.version) == (None, None)


def test_all_of_the_registry(tmp_path):
    more = {
        "schema__registry__url": "https://u:p@a/x, https://b",
        "schema__registry__basic__auth__user__info": "app:s:ecret",
        "schema__registry__request__timeout__ms": "5",
        "schema__registry__default__api__timeout__ms": "7",
        "schema__registry__enable__ssl__certificate__verification": "false",
    }
    options = source(**AVRO | more)
    address = pickle.loads(pickle.dumps(options)).avro.registry.address()
    assert address.urls == ("https://a/x", "https://b")
    assert address.user_info.reveal() == "app:s:ecret"
    assert (address.request_timeout_ms, address.patience_ms) == (5, 7)
    assert not address.tls.verifies
    assert "s:ecret" not in repr(options)
    assert any("basic.auth.user.info" in note for note in options.notes)


def test_what_stands_in_a_file_never_leaves_the_process(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(
        "schema.registry.url=http://file:1\nschema.registry.basic.auth.user.info=app:secret\n"
    )
    options = source(
        value__format="avro",
        client__config__file=str(path),
        schema__registry__request__timeout__ms="5",
    )
    assert b"secret" not in pickle.dumps(options)
    address = options.avro.registry.address()
    assert (address.urls, address.request_timeout_ms) == (("http://file:1",), 5)
    assert address.user_info.reveal() == "app:secret"
    path.write_text("schema.registry.ulr=http://file:1\n")
    with one_line("'schema.registry.ulr' is not known"):
        source(**AVRO, client__config__file=str(path))


def test_the_sink():
    avro = sink(topic="t", **AVRO, key__format="avro", normalize__schemas="true").avro
    assert (avro.registers, avro.use_latest, avro.normalizes) == (True, False, True)
    assert avro.value.names is avro.key.names is SubjectNames.TOPIC
    assert not sink(topic="t", **AVRO, use__latest__version="true").avro.registers


def test_names_of_subjects():
    assert SubjectNames.TOPIC.subject("t", "key", None) == "t-key"
    assert SubjectNames.RECORD.subject("t", "key", "a.B") == "a.B"
    assert SubjectNames.TOPIC_RECORD.subject("t", "value", "a.B") == "t-a.B"
    with pytest.raises(OptionError, match="the schema has no name"):
        SubjectNames.RECORD.subject("t", "value", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value__format": "avro"}, "'schema.registry.url' must be set"),
        ({"value__format": "json"}, "'value.format' must be 'avro' or 'binary'"),
        ({"key__format": "avro"}, "'key.format=avro' needs value.format=avro"),
        ({"mode": "permissive"}, "'mode' is for Avro: set value.format=avro"),
        ({"schema__registry__url": "http://r"}, "'schema.registry.url' is for Avro"),
        (AVRO | {"mode": "drop"}, "'mode' must be 'failfast' or"),
        (AVRO | {"key__schema__version": "1"}, "'key.schema.version' is for keys in Avro"),
        (AVRO | {"value__schema__version": "0"}, "'value.schema.version' must be a whole number"),
        (AVRO | {"value__schema__subject": ""}, "'value.schema.subject' must be a name"),
        (AVRO | {"schema__registry__url": "r:8081"}, "'schema.registry.url': it must be http://"),
        (AVRO | {"schema__registry__basic__auth__user__info": "app"}, "must be user:password"),
        (AVRO | {"schema__registry__basic__auth__credentials__source": "SASL_INHERIT"},
         "must be USER_INFO or URL"),
        (AVRO | {"schema__registry__ssl__ca__location": "/nowhere"}, "/nowhere can't be read"),
        (AVRO | {"schema__registry__request__timeout__ms": "1s"}, "must be a whole number from 1"),
        (AVRO | {"basic__auth__user__info": "a:b"}, "did you mean 'schema.registry.basic.auth"),
        (AVRO | {"use__latest__version": "true"}, "is an option of the sink"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_one_line(options, message):
    assert_refused(source, options, message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (AVRO, "'value.format=avro' needs 'topic'"),
        (AVRO | {"topic": "t", "mode": "permissive"}, "is an option of the source"),
        (AVRO | {"topic": "t", "createTopic": "true"}, "'createTopic' makes a typed topic"),
        (AVRO | {"topic": "t", "use__latest__version": "true", "auto__register__schemas": "true"},
         "are both true"),
        (AVRO | {"topic": "t", "use__latest__version": "true", "value__schema": '"int"'},
         "both say what schema"),
        (AVRO | {"topic": "t", "value__schema__version": "1",
                 "value__subject__name__strategy": "record"}, "follows from the schema's name"),
        (AVRO | {"topic": "t", "value__subject__name__strategy": "mine"}, "must be topic, record"),
        (AVRO | {"topic": "t", "key__schema": '"int"'}, "'key.schema' is for keys in Avro"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_in_the_sink_is_one_line(options, message):
    assert_refused(sink, options, message)
