"""Parses the options that a test names, beside the servers and a topic."""

from contextlib import contextmanager

import pytest

from connector.errors import OptionError
from connector.options.sink_options import parse_sink_options
from connector.options.source_options import parse_source_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def source(**options):
    named = {name.replace("__", "."): text for name, text in options.items()}
    return parse_source_options(SERVERS | {"subscribe": "t"} | named)


def sink(**options):
    named = {name.replace("__", "."): text for name, text in options.items()}
    return parse_sink_options(SERVERS | named)


@contextmanager
def one_line(message, kind=OptionError):
    """The code within raises an error of one line that contains `message`."""
    with pytest.raises(kind) as raised:
        yield
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def assert_refused(parse, options, message):
    """`parse`, which is `source` or `sink`, refuses the options in one line with this message."""
    with one_line(message):
        parse(**options)
