"""The connections to the schema registry for one principal."""

import threading

import pyarrow as pa
import pytest

from headrace_console.cluster import registry_upstream
from headrace_console.cluster.registry_upstream import RegistryUpstream
from headrace_console.problem import ConsoleError, as_console_error
from storage_engine.client.schema_registry_http import RegistryAddress, SchemaRegistryError
from storage_engine.core.security.security_protocol import Secret
from storage_engine.tests.client.registry.small_registry import small_registry

VALUE = pa.array([b"\0\0\0\0\x01\x02x"], pa.binary())


def upstream(registry, log_in=None):
    return RegistryUpstream(RegistryAddress(urls=(registry.url,)), log_in)


def texts(reader):
    return reader.values.read(VALUE).texts.to_pylist()


def test_a_principal_logs_in_and_a_refusal_is_none_of_the_console():
    with small_registry(user_info="anna:secret") as registry:
        anna, bert = upstream(registry, Secret("anna:secret")), upstream(registry, Secret("b:x"))
        assert anna.ask(lambda http: http.ask("GET", "/subjects")) == []
        with pytest.raises(SchemaRegistryError) as refused:
            bert.ask(lambda http: http.ask("GET", "/subjects"))
        assert as_console_error(refused.value).code == "not_allowed", "401 would log the user out"
        for each in (anna, bert):
            each.close()


def test_what_was_fetched_is_kept_for_a_while_and_for_nobody_else(monkeypatch):
    with small_registry() as registry:
        registry.register("t-value", '"string"')
        anna, bert = upstream(registry), upstream(registry)
        assert [anna.read(texts) for _ in range(3)] == [['"x"']] * 3
        assert len(registry.asked) == 1
        assert bert.read(texts) == ['"x"']
        assert len(registry.asked) == 2
        monkeypatch.setattr(registry_upstream, "KEPT_S", 0.0)
        anna.read(texts)
        assert len(registry.asked) == 3
        for each in (anna, bert):
            each.close()


def test_a_schema_is_named_by_the_subject_that_is_meant_and_by_its_newest_version():
    with small_registry() as registry:
        for subject in ("a-value", "t-value", "z"):
            schema_id = registry.register(subject, '"string"')
        own = upstream(registry)
        assert own.read(lambda reader: reader.place_of(schema_id, "t-value")) == ("t-value", 1, 2)
        assert own.read(lambda reader: reader.place_of(schema_id, "u-value")) == ("a-value", 1, 2)
        assert own.read(lambda reader: reader.place_of(99, "t-value")) is None
        own.close()


def test_who_finds_no_connection_waits_for_a_moment_only(monkeypatch):
    monkeypatch.setattr(registry_upstream, "_WAIT_S", 0.05)
    with small_registry() as registry:
        own = upstream(registry)
        busy, done = threading.Event(), threading.Event()

        def hold(_):
            busy.set()
            done.wait(60)

        threads = [threading.Thread(target=own.read, args=(hold,))]
        threads += [
            threading.Thread(target=own.ask, args=(hold,))
            for _ in range(registry_upstream.MOST_CLIENTS)
        ]
        try:
            for each in threads:
                busy.clear()
                each.start()
                assert busy.wait(60)
            for work in (own.read, own.ask):
                with pytest.raises(ConsoleError, match="are busy"):
                    work(hold)
        finally:
            done.set()
            for each in threads:
                each.join()
            own.close()
