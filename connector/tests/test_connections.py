"""Connections of a process."""

import os
from dataclasses import replace

import pytest

from connector import connections
from connector.connections import MAX_CLUSTERS, close_all, cluster_for
from connector.errors import OptionError
from connector.options.connection_options import ConnectionOptions
from storage_engine.client.settings import client_security


def _options(name="h"):
    return ConnectionOptions(
        bootstrap_servers=f"{name}:1", client_id="c", request_timeout_ms=1, metadata_max_age_ms=1
    )


def test_equal_options_share_a_cluster_and_others_do_not():
    close_all()
    assert cluster_for(_options()) is cluster_for(_options())
    assert cluster_for(_options("other")) is not cluster_for(_options())


def test_a_forked_child_does_not_use_its_parents(monkeypatch):
    close_all()
    of_parent = cluster_for(_options())
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert cluster_for(_options()) is not of_parent
    monkeypatch.undo()
    close_all()


def test_the_number_of_clusters_is_bounded():
    close_all()
    first = cluster_for(_options("first"))
    for number in range(MAX_CLUSTERS):
        cluster_for(_options(f"h{number}"))
    assert len(connections._clusters) == MAX_CLUSTERS
    assert cluster_for(_options("first")) is not first
    close_all()


def test_a_file_that_is_not_right_on_this_machine_is_an_option_error():
    options = replace(
        _options(),
        security=client_security(
            {"security.protocol": "SSL", "ssl.ca.location": "/no/ca.pem"}, client="test"
        ),
    )
    with pytest.raises(OptionError, match=r"BAD_OPTION.*ssl\.ca\.location=/no/ca\.pem"):
        cluster_for(options)


def test_a_file_of_settings_that_was_changed_is_read_again(tmp_path):
    close_all()
    file = tmp_path / "client.properties"
    text = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=a\n"
    )
    file.write_text(text)
    options = replace(_options(), config_file=str(file))
    before = cluster_for(options)
    assert cluster_for(options) is before
    file.write_text(text.replace("=a", "=b"))
    os.utime(file, ns=(1, 1))
    assert cluster_for(options) is not before
    close_all()
