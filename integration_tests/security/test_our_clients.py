"""Our clients at brokers with TLS and log-ins: what is right lets them in, and nothing else."""

import asyncio
import contextlib
import logging
import threading
import time

import pytest

from integration_tests.security.secured_cluster import (
    PLAIN_SECRET,
    SECRET,
    properties_file,
    secured_cluster,
)
from storage_engine.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    AuthenticationError,
    BulkReader,
    Consumer,
    ConsumerConnector,
    NewTopic,
    Producer,
    SimpleConsumer,
    TopicPartition,
)
from storage_engine.client.connection import BrokerConnection
from storage_engine.tests.client.security.token_endpoint import Endpoint, running
from storage_engine.tools.cli import main

SCRAM_LINE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN_LINE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with secured_cluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


WAYS = {
    "mTLS": lambda c: c.config("MTLS", ssl_keystore_location=c.client_file),
    "mTLS, librdkafka's names": lambda c: c.config(
        "MTLS", ssl_certificate_location=c.client_file, ssl_key_location=c.client_file
    ),
    "SCRAM-SHA-256": lambda c: c.bob("SASL", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda c: c.bob("SASL"),
    "SCRAM-SHA-256 over TLS": lambda c: c.bob("BOTH", "SCRAM-SHA-256"),
    "SCRAM-SHA-512 over TLS, JAAS": lambda c: c.config(
        "BOTH",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=f'{SCRAM_LINE} username="bob" password="{SECRET}";',
    ),
    "PLAIN over TLS, JAAS": lambda c: c.config(
        "BOTH", sasl_jaas_config=f'{PLAIN_LINE} username="alice" password="{PLAIN_SECRET}";'
    ),
    "OAUTHBEARER over TLS": lambda c: c.config(
        "BOTH",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=c.token_file.as_uri(),
    ),
}


def written_and_read(config, topic):
    """Whether records come back that were written."""
    with Admin(config) as admin:
        admin.create_topics([NewTopic(name=topic, partitions=2, replication_factor=1)])
    sent = {b"%d" % number for number in range(100)}
    with Producer(config) as producer:
        for value in sent:
            producer.send(topic, value)
    read: set[bytes] = set()
    with Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        until = time.monotonic() + 90
        while read != sent and time.monotonic() < until:
            read.update(record.value for record in consumer.poll(500))
    assert read == sent


@pytest.mark.parametrize("way", WAYS)
def test_records_are_written_and_read_by_every_way_in(cluster, way):
    cluster.write_token("carol")
    written_and_read(WAYS[way](cluster), f"way-{list(WAYS).index(way)}")


def test_a_token_that_has_ended_is_refused(cluster):
    cluster.write_token("carol", lifetime_s=-3_600)
    with (
        pytest.raises(AuthenticationError, match="by OAUTHBEARER failed"),
        Admin(WAYS["OAUTHBEARER over TLS"](cluster)) as admin,
    ):
        admin.list_topics()


def test_a_token_of_an_endpoint_lets_in_by_client_credentials(cluster):
    endpoint = Endpoint()
    endpoint.answer = (200, {"access_token": cluster.token("carol"), "expires_in": 3600})
    config = cluster.config(
        "BOTH",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"http://127.0.0.1:{endpoint.port}/token",
        sasl_jaas_config="org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
        'required clientId="app" clientSecret="hidden-pw" scope="kafka";',
    )
    with running(endpoint):
        written_and_read(config, "by-endpoint")
    assert len(endpoint.asked) == 1, "all clients of a process share the token"
    assert endpoint.asked[0][1] == "grant_type=client_credentials&scope=kafka"


WRONG = {
    "password": lambda c: {**c.bob("SASL"), "sasl.password": "hidden-pw"},
    "user": lambda c: {**c.bob("BOTH"), "sasl.username": "nobody", "sasl.password": "hidden-pw"},
    "password of PLAIN": lambda c: c.config(
        "BOTH",
        sasl_jaas_config=f'{PLAIN_LINE} username="alice" password="hidden-pw";',
    ),
    "authority": lambda c: {**c.bob("BOTH"), "ssl.ca.location": c.stranger_file},
}
CALLS = {
    "Admin": lambda config: Admin(config).list_topics(),
    "Producer": lambda config: Producer(config).send("t", b"x").result(),
    "Consumer": lambda config: consumed(config),
    "Consumer in a group": lambda config: consumed({**config, "group.id": "g"}),
    "BulkReader": lambda config: BulkReader(config).splits(["t"]),
    "SimpleConsumer": lambda config: SimpleConsumer(
        config["bootstrap.servers"],
        security={key: text for key, text in config.items() if key != "bootstrap.servers"},
    ).fetch(TopicPartition("t", 0), 0),
}


def consumed(config):
    with Consumer(config) as consumer:
        if "group.id" in config:
            consumer.subscribe(["t"])
        else:
            consumer.assign([TopicPartition("t", 0)])
        until = time.monotonic() + 60
        while time.monotonic() < until:
            consumer.poll(1_000)


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_told_at_once_and_without_the_secret(cluster, wrong, caplog):
    caplog.set_level(logging.DEBUG)
    began = time.monotonic()
    with pytest.raises(AuthenticationError) as raised:
        CALLS["Admin"](WRONG[wrong](cluster))
    # Not after the minute that a client goes on for where an error may pass.
    assert time.monotonic() - began < 25
    assert "127.0.0.1:" in str(raised.value)
    assert "hidden-pw" not in str(raised.value) + repr(raised.value) + caplog.text


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (None, "certificate required; give one with ssl.keystore.location"),
        ("stranger_file", "unknown ca; it does not know the authority of the certificate"),
    ],
)
def test_a_client_without_the_right_certificate_is_told_what_it_lacks(cluster, shown, told):
    config = cluster.config("MTLS")
    if shown is not None:
        config["ssl.keystore.location"] = getattr(cluster, shown)
    with pytest.raises(AuthenticationError, match=told):
        Admin(config).list_topics()


@pytest.mark.parametrize("call", CALLS)
def test_every_client_tells_of_a_log_in_that_failed(cluster, call, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(AuthenticationError, match=r"as 'bob' by SCRAM-SHA-512 failed") as raised:
        CALLS[call](WRONG["password"](cluster))
    assert "hidden-pw" not in str(raised.value) + caplog.text


def test_sessions_are_renewed_between_requests_while_records_flow(cluster, monkeypatch):
    """A session lasts two seconds at this listener: the connections stay, and nothing is lost or
    doubled."""
    log_ins = []
    original = BrokerConnection._log_in

    def counted(connection, deadline):
        log_ins.append(id(connection))
        original(connection, deadline)

    monkeypatch.setattr(BrokerConnection, "_log_in", counted)
    config = cluster.bob("BRIEF")
    with Admin(config) as admin:
        admin.create_topics([NewTopic(name="flow", partitions=3, replication_factor=1)])
    read: list[bytes] = []
    done = threading.Event()

    def read_on():
        group = {**config, "group.id": "flow", "auto.offset.reset": "earliest"}
        with Consumer(group) as consumer:
            consumer.subscribe(["flow"])
            until = time.monotonic() + 60
            while time.monotonic() < until and not (done.is_set() and len(read) >= len(sent)):
                read.extend(record.value for record in consumer.poll(200))

    sent: list[bytes] = []
    reader = threading.Thread(target=read_on)
    reader.start()
    with Producer(config) as producer:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            for _ in range(20):
                sent.append(b"%d" % len(sent))
                producer.send("flow", sent[-1])
            time.sleep(0.01)
    done.set()
    reader.join(90)
    assert sorted(read) == sorted(sent)
    most = max(log_ins.count(each) for each in set(log_ins))
    assert most >= 3, "a connection logs in again and again, instead of being made anew"


def test_a_session_that_has_ended_while_nothing_was_asked_goes_on(cluster):
    with Admin(cluster.bob("BRIEF")) as admin:
        before = admin.list_topics()
        time.sleep(2.2)
        assert admin.list_topics() == before


def test_a_user_who_is_removed_is_out_at_the_next_log_in(cluster):
    """The clients that were in get an error, and no endless silence."""
    cluster.add_user("dave", "pw-of-dave")
    config = cluster.bob("BRIEF")
    config |= {"sasl.username": "dave", "sasl.password": "pw-of-dave"}
    refused = pytest.raises(AuthenticationError, match="as 'dave' by SCRAM-SHA-512 failed")
    # The end of the block raises the first error of what was sent in it.
    with pytest.raises(AuthenticationError), Producer(config) as producer:
        producer.send("t", b"before").result()
        group = {**config, "group.id": "of-dave", "auto.offset.reset": "earliest"}
        with contextlib.closing(Consumer(group)) as consumer:
            consumer.subscribe(["t"])
            until = time.monotonic() + 90
            while not consumer.poll(200) and time.monotonic() < until:
                pass
            cluster.remove_user("dave")
            began = time.monotonic()
            with refused:
                while time.monotonic() < began + 60:
                    consumer.poll(200)
        with pytest.raises(AuthenticationError, match="as 'dave'"):
            while time.monotonic() < began + 60:
                producer.send("t", b"after").result()
                time.sleep(0.1)


def test_the_clients_for_asyncio(cluster):
    config = cluster.bob("BOTH")

    async def run():
        async with AsyncProducer(config) as producer:
            await (await producer.send("t", b"asynchronous"))
        found = []
        group = {**config, "group.id": "async", "auto.offset.reset": "earliest"}
        async with AsyncConsumer(group) as consumer:
            await consumer.subscribe(["t"])
            while b"asynchronous" not in found:
                found += [record.value for record in await consumer.poll(500)]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_consumer_of_zookeepers_groups_takes_the_listener_of_its_protocol(cluster):
    config = cluster.bob("BOTH")
    config.pop("bootstrap.servers")
    with Producer(cluster.bob("BOTH")) as producer:
        producer.send("t", b"for zookeeper").result()
    place = {
        "zookeeper.connect": cluster.brokers.zookeeper_connect,
        "group.id": "zk",
        "auto.offset.reset": "earliest",
    }
    with ConsumerConnector({**config, **place}) as connector:
        (stream,) = connector.create_message_streams({"t": 1})["t"]
        for message in stream:
            if message.value == b"for zookeeper":
                break


def test_a_producer_that_finds_brokers_in_zookeeper(cluster):
    config = cluster.bob("BOTH")
    config.pop("bootstrap.servers")
    with Producer({**config, "zookeeper.connect": cluster.brokers.zookeeper_connect}) as producer:
        producer.send("t", b"found").result()


def test_commands_take_a_file(cluster, tmp_path, capfd):
    config = cluster.bob("BOTH")
    servers = config.pop("bootstrap.servers")
    file = properties_file(tmp_path / "admin.properties", config)
    place = ["--bootstrap-server", servers, "--command-config", str(file)]
    assert main(["topics", "create", "by-command", *place, "--replication-factor", "1"]) == 0
    assert main(["topics", "list", *place]) == 0
    assert "by-command" in capfd.readouterr().out
    with Producer(cluster.bob("BOTH")) as producer:
        producer.send("by-command", b"a line").result()
    assert main(["consume", "by-command", *place, "--from", "earliest", "--max", "1"]) == 0
    assert "a line" in capfd.readouterr().out
    assert main(["get-offsets", *place, "--topic", "by-command"]) == 0
    assert main(["groups", "list", *place]) == 0
    assert main(["elect-preferred", *place]) == 0
    assert main(["verify-replicas", *place, "--topics", "by-command"]) == 0
    export = ["export", "by-command", *place, "--dir", str(tmp_path / "exported")]
    assert main(export) == 0
    capfd.readouterr()
    wrong = properties_file(tmp_path / "wrong.properties", {**config, "sasl.password": "hidden-pw"})
    place = ["--bootstrap-server", servers, "--command-config", str(wrong)]
    assert main(["topics", "list", *place]) == 1
    said = capfd.readouterr().err
    assert "the log-in as 'bob' by SCRAM-SHA-512 failed" in said
    assert "hidden-pw" not in said


def test_a_mirror_logs_in_differently_on_both_sides(cluster, tmp_path):
    source = cluster.bob("BOTH", "SCRAM-SHA-256")
    target = cluster.config("MTLS", ssl_keystore_location=cluster.client_file)
    source_servers, target_servers = (c.pop("bootstrap.servers") for c in (source, target))
    with Producer(cluster.bob("BOTH")) as producer:
        producer.send("t", b"to be mirrored").result()
    arguments = ["--source", f"here={source_servers}", "--target", target_servers]
    source_file = properties_file(tmp_path / "source.properties", source)
    target_file = properties_file(tmp_path / "target.properties", target)
    arguments += ["--source-config", f"here={source_file}", "--target-config", str(target_file)]
    arguments += ["--topics", "t", "--target-topic", "copy-of-{topic}", "--groups", ".*"]
    assert main(["mirror", *arguments, "--exit-at-end", "--replication-factor", "1"]) == 0
    with Consumer(cluster.bob("SASL")) as consumer:
        ends = consumer.end_offsets([TopicPartition("copy-of-t", each) for each in range(3)])
    assert sum(ends.values()) > 0
