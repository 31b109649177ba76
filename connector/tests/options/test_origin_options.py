"""Where rows come from: `idempotentKey` and `originServers`."""

from dataclasses import replace

import pytest

from connector.tests.options.parsed import assert_refused, sink


def test_origins_are_known_by_the_sinks_own_brokers_unless_others_are_named():
    keyed = {"idempotentKey": "Topic, partition,offset", "sinkId": "s"}
    options = sink(**keyed)
    assert options.origin.columns == ("topic", "partition", "offset")
    assert options.origin.connection == options.connection
    elsewhere = sink(**keyed, originServers="a:1, b:2").origin.connection
    assert elsewhere == replace(options.connection, bootstrap_servers="a:1,b:2")
    assert sink(**keyed, originServers="none").origin.connection is None
    assert sink(sinkId="s").origin is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"idempotentKey": "t,p,o"}, "'idempotentKey' needs 'sinkId'"),
        ({"idempotentKey": "t,p", "sinkId": "s"}, "must be three columns such as topic"),
        (
            {"idempotentKey": "t,p,T", "sinkId": "s"},
            "must be three columns such as topic",
        ),
        ({"idempotentKey": "key,p,o", "sinkId": "s"}, "must be columns other than key, value and"),
        (
            {"idempotentKey": "t,p,o", "sinkId": "s", "batchId": "1"},
            "'batchId' and 'idempotentKey' both say what was written before",
        ),
        ({"originServers": "h:1"}, "'originServers' needs 'idempotentKey'"),
        (
            {"idempotentKey": "t,p,o", "sinkId": "s", "originServers": "nowhere"},
            "'originServers' must be host:port",
        ),
        (
            {"idempotentKey": "t,p,o", "deliveryGuarantee": "at-least-once"},
            "'idempotentKey' belongs to exactly-once delivery",
        ),
    ],
)
def test_origins_that_can_not_be_told_are_one_line(options, message):
    assert_refused(sink, options, message)
