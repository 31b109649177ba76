"""Options by their names: known and misspelled ones, and the document that names all of them."""

import re
from pathlib import Path

import pytest

from connector.errors import OptionError
from connector.options.option_table import CLIENT_PREFIX, OPTIONS, Status
from connector.options.source_options import parse_source_options
from connector.options.subscription import SubscribedTopics
from connector.tests.options.parsed import SERVERS, assert_refused, sink, source

DOCUMENT = Path(__file__).parents[3] / "docs" / "spark.md"
REFERENCES = (
    "## Options of source and sink",
    "## Options of the source",
    "## Options of the sink",
)
COMPARISON = "## Spark's Kafka connector against ours, option by option"
VERDICTS = ("same", "better", "differs, because ")


def _rows(heading):
    section = DOCUMENT.read_text(encoding="utf-8").split(heading, 1)[1].split("\n#", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def _names(cell):
    return {name.removeprefix(CLIENT_PREFIX).lower() for name in re.findall(r"`([^`]+)`", cell)}


def test_every_option_that_works_is_in_the_reference_of_its_side():
    missing = {}
    for heading, side in zip(REFERENCES, (("source", "sink"), ("source",), ("sink",)), strict=True):
        named = set().union(*(_names(row[0]) for row in _rows(heading)))
        wanted = {
            name
            for name, entry in OPTIONS.items()
            if entry.status is Status.WORKS and entry.sides == side
        }
        missing[heading] = wanted ^ named
    assert missing == {heading: set() for heading in REFERENCES}


def test_every_option_has_a_place_in_the_comparison():
    named = set().union(*(_names(row[0]) for row in _rows(COMPARISON)))
    assert {entry.name for name, entry in OPTIONS.items() if name not in named} == set()


def test_every_row_of_the_comparison_has_a_verdict():
    rows = _rows(COMPARISON)
    assert len(rows) > 30
    for option, theirs, ours, verdict in rows:
        assert option and theirs and ours
        assert verdict.startswith(VERDICTS)
        assert len(verdict) > len(VERDICTS[-1]) or verdict in VERDICTS


def test_names_are_case_insensitive_and_the_prefix_may_be_left_out():
    options = parse_source_options(
        {"bootstrap.servers": "a:1, b:2", "SUBSCRIBE": "y,x", "maxoffsetspertrigger": "7"}
    )
    assert options.connection.bootstrap_servers == "a:1,b:2"
    assert options.subscription == SubscribedTopics(names=("x", "y"))
    assert options.max_offsets_per_trigger == 7


OF_A_TABLE = {"provider": "headrace", "owner": "root", "comment": "c", "collation": "UTF8_BINARY"}


def test_what_spark_adds_in_create_table_is_no_option_of_the_users():
    doubled = {f"option.{key}": text for key, text in SERVERS.items()}
    options = SERVERS | doubled | {"subscribe": "t", "option.subscribe": "t"} | OF_A_TABLE
    assert parse_source_options(options) == source()


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"owner": "root"}, "owner"),
        ({"provider": "kafka"}, "provider"),
        ({"option.subscribe": "t"}, "option.subscribe"),
        (OF_A_TABLE | {"option.subscribe": "u"}, "option.subscribe"),
        (OF_A_TABLE | {"suscribe": "u"}, "suscribe"),
        (OF_A_TABLE | {"location": "file:/x", "path": "file:/x"}, "location"),
    ],
)
def test_elsewhere_its_words_are_unknown_and_so_are_other_properties_of_a_table(more, named):
    with pytest.raises(OptionError, match=f"'{named}' is not an option"):
        source(**more)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscibe": "t"}, "'subscibe' is not an option of the source; did you mean 'subscribe'?"),
        ({"startingOffset": "x"}, "did you mean 'startingOffsets'?"),
        ({"kafka.isolation.levle": "x"}, "did you mean 'isolation.level'?"),
        ({"zzz": "1"}, "'zzz' is not an option of the source"),
        ({"kafka.subscribe": "t"}, "'kafka.subscribe' is not an option"),
        ({"topic": "t"}, "'topic' is an option of the sink, not of the source"),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets instead"),
        ({"kafka.key.deserializer": "x"}, "can't be set"),
        ({"kafka.enable.auto.commit": "true"}, "can't be set"),
        ({"kafka.interceptor.classes": "x"}, "can't be set"),
        ({"kafka.sasl.kerberos.service.name": "k"}, "Kerberos is not supported"),
    ],
)
def test_a_name_that_is_no_option_of_the_source_is_one_line(options, message):
    assert_refused(source, options, message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topc": "t"}, "did you mean 'topic'?"),
        ({"subscribe": "t"}, "'subscribe' is an option of the source, not of the sink"),
    ],
)
def test_a_name_that_is_no_option_of_the_sink_is_one_line(options, message):
    assert_refused(sink, options, message)
