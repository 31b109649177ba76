"""R-REP11, R-CTL4: brokers whose ZooKeeper is cut off, slow, restarted or guarded by passwords go
on, fence themselves where they must, and come back; nothing acknowledged is lost.

Connections cut for a moment, an ensemble of three and ACLs: with HEADRACE_FAULTS=full. Servers that
are gone for a moment are in storage_engine/tests/zookeeper/test_session.py, too.
"""

import contextlib
import time

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from integration_tests.controller.zookeeper_ensemble import running_ensemble
from integration_tests.support.cluster_support import (
    SESSION_TIMEOUT_MS,
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.command_line import fail
from integration_tests.support.proxied_cluster import (
    ProxiedCluster,
    running_proxied_cluster,
    zookeeper_of_its_own,
)
from integration_tests.support.steady_producer import SteadyProducer, check_kept
from storage_engine.tests.sampling import ALL_FAULTS, in_full
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.zookeeper.embedded import attach_embedded, start_embedded

TOPIC = "steady"
OF_EVERYBODY = "/consumers"
"""Groups that meet in ZooKeeper have no credentials."""
SAFE = {"min.insync.replicas": "2"}
QUIET_S = 1.0
LEASE_ENDS_S = SESSION_TIMEOUT_MS / 1000 + 15
"""Of every broker, on a busy machine too."""
HOLDS = [{}, {"to_target": False}, {"from_target": False}][: None if ALL_FAULTS else 2]
"""What a cut holds back; by default both directions, then only what ZooKeeper says."""


def more(producer: SteadyProducer, count: int = 300) -> None:
    """Waits for further acknowledgements."""
    before = len(producer.acknowledged)
    wait_until(lambda: len(producer.acknowledged) > before + count, "sends are acknowledged")


def test_a_leader_cut_off_from_zookeeper_stops_acknowledging_and_comes_back(tmp_path):
    with running_proxied_cluster(tmp_path) as cluster:
        create_topic(cluster, TOPIC, config=SAFE)
        client = admin(cluster)
        with SteadyProducer(cluster.bootstrap_servers, TOPIC) as producer:
            for hold in HOLDS:
                more(producer)
                wait_for_isr(client, TOPIC, 3)
                old = leader_of(client, TOPIC)
                cluster.to_zookeeper[old].hold(**hold)
                wait_until(lambda old=old: leader_of(client, TOPIC) != old, "another broker leads")
                _takes_nothing(cluster, old)
                more(producer)
                cluster.to_zookeeper[old].heal()
                wait_for_isr(client, TOPIC, 3)
            check_kept(cluster.bootstrap_servers, TOPIC, producer)


def _takes_nothing(cluster: ProxiedCluster, broker: int) -> None:
    """Asked alone, with acks=1, the broker acknowledges no record."""
    address = cluster.entries[broker].address
    outcomes = []
    sender = Producer(
        {
            "bootstrap.servers": address,
            "acks": 1,
            "message.timeout.ms": 1_500,
            "allow.auto.create.topics": False,
            # Whatever it says of the others, they are not asked.
            "broker.address.family": "v4",
            "log_level": 0,
        }
    )
    metadata = sender.list_topics(TOPIC, timeout=60)
    if metadata.topics[TOPIC].partitions[0].leader != broker:
        return  # it has heard of its successor already
    sender.produce(TOPIC, b"-1", partition=0, on_delivery=lambda error, _m: outcomes.append(error))
    sender.flush(10)
    assert outcomes
    assert outcomes[0] is not None


@in_full
def test_sessions_cut_for_a_moment_cost_nobody_the_leadership(tmp_path):
    with running_proxied_cluster(tmp_path) as cluster:
        create_topic(cluster, TOPIC, config=SAFE)
        client = admin(cluster)
        with SteadyProducer(cluster.bootstrap_servers, TOPIC) as producer:
            more(producer)
            leader = leader_of(client, TOPIC)
            for _ in range(3):
                for proxy in cluster.to_zookeeper.values():
                    proxy.cut()
                    proxy.heal()
                more(producer)
            assert leader_of(client, TOPIC) == leader
            for proxy in cluster.to_zookeeper.values():
                proxy.delay(0.2)
            create_topic(cluster, "made-slowly", partitions=3)
            more(producer)
            for proxy in cluster.to_zookeeper.values():
                proxy.heal()
            wait_for_isr(client, TOPIC, 3)
            check_kept(cluster.bootstrap_servers, TOPIC, producer)


def test_zookeeper_that_is_gone_for_longer_than_a_session_lets_the_cluster_come_back(tmp_path):
    with running_cluster(tmp_path, has_zookeeper=True) as cluster:
        create_topic(cluster, TOPIC, config=SAFE)
        client = admin(cluster)
        folder = tmp_path / "zookeeper"
        with SteadyProducer(cluster.bootstrap_servers, TOPIC) as producer:
            more(producer)
            zookeeper = attach_embedded(folder)
            assert zookeeper is not None
            zookeeper.stop()

            def nothing_is_acknowledged() -> bool:
                before = len(producer.acknowledged)
                time.sleep(QUIET_S)
                return len(producer.acknowledged) == before

            what = "leaders without a lease acknowledge nothing"
            wait_until(nothing_is_acknowledged, what, timeout_s=LEASE_ENDS_S)
            assert nothing_is_acknowledged()
            start_embedded(folder, port=zookeeper.port, unsafe_no_fsync=True)
            more(producer)
            wait_for_isr(client, TOPIC, 3)
            check_kept(cluster.bootstrap_servers, TOPIC, producer)


@in_full
def test_an_ensemble_of_three_loses_its_leader_and_all_of_itself(tmp_path):
    with running_ensemble(tmp_path / "ensemble") as ensemble:
        request = UpRequest(
            brokers=3,
            port=0,
            zookeeper=ensemble.connect + "/headrace",
            settings=(("zookeeper.session.timeout.ms", "4000"),),
        )
        with LocalCluster.running(tmp_path / "cluster", request) as cluster:
            create_topic(cluster, TOPIC, config=SAFE)
            client = admin(cluster)
            with SteadyProducer(cluster.bootstrap_servers, TOPIC) as producer:
                for server in ensemble.ids:
                    more(producer)
                    ensemble.kill(server)
                    more(producer)
                    ensemble.start(server)
                    ensemble.wait_until_serving()
                for server in ensemble.ids:
                    ensemble.kill(server)
                for server in ensemble.ids:
                    ensemble.start(server)
                ensemble.wait_until_serving()
                more(producer)
                wait_for_isr(client, TOPIC, 3)
                # librdkafka fails what it has asked of a broker that is not listed for a moment.
                # librdkafka drops a request to a broker that another one no longer lists.
                wait_until(
                    lambda: _listed_by_each(cluster) == [3, 3, 3], "each broker lists all again"
                )
                create_topic(cluster, "after")
                check_kept(cluster.bootstrap_servers, TOPIC, producer)


@in_full
def test_a_cluster_with_acls_keeps_strangers_from_its_znodes(tmp_path):
    credentials = tmp_path / "zookeeper.password"
    credentials.touch(mode=0o600)
    credentials.write_text("headrace:secret\n")
    settings = (
        ("zookeeper.digest.credentials.file", str(credentials)),
        ("zookeeper.set.acl", "true"),
        ("zookeeper.session.timeout.ms", str(SESSION_TIMEOUT_MS)),
    )
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(zookeeper_of_its_own(tmp_path / "zookeeper"))
        request = UpRequest(
            brokers=3, port=0, zookeeper=f"{zookeeper.connect}/guarded", settings=settings
        )
        cluster = stack.enter_context(LocalCluster.running(tmp_path / "cluster", request))
        create_topic(cluster, TOPIC, config=SAFE)
        client = admin(cluster)
        stranger = KazooClient(cluster.state.zookeeper)
        stranger.start()
        try:
            tree = _tree(stranger, "/")
            assert f"/brokers/topics/{TOPIC}/partitions/0/state" in tree
            for path in tree:
                harms = [lambda path=path: stranger.delete(path)]
                if path == OF_EVERYBODY:
                    stranger.create(f"{path}/billing", b"")
                else:
                    harms.append(lambda path=path: stranger.set(path, b"mine"))
                    harms.append(lambda path=path: stranger.create(f"{path}/x", b""))
                for harm in harms:
                    with contextlib.suppress(NoAuthError):
                        harm()
                        raise AssertionError(f"{path} is open to strangers")
        finally:
            stranger.stop()
            stranger.close()
        leader = leader_of(client, TOPIC)
        cluster.kill_broker(leader)
        wait_until(lambda: leader_of(client, TOPIC) != leader, "another broker leads")
        credentials.write_text("headrace:wrong\n")
        error = fail("start-broker", "--dir", tmp_path / "cluster", leader)
        assert "ZooKeeper lets user 'headrace' not write /brokers/ids" in error
        assert "secret" not in error
        credentials.write_text("headrace:secret\n")
        cluster.start_broker(leader)
        wait_for_isr(client, TOPIC, 3)
        client.delete_topics([TOPIC], request_timeout=60)[TOPIC].result(90)


def _listed_by_each(cluster: LocalCluster) -> list[int]:
    """How many brokers each one knows: a new client asks first the one that it is told of."""
    listed = []
    for address in cluster.bootstrap_servers.split(","):
        client = AdminClient({"bootstrap.servers": address, "log_level": 0})
        try:
            listed.append(len(client.list_topics(timeout=5).brokers))
        except KafkaException:
            listed.append(0)
    return listed


def _tree(client: KazooClient, path: str) -> list[str]:
    """All nodes below `path`."""
    below = []
    for name in client.get_children(path):
        child = f"{path.rstrip('/')}/{name}"
        below += [child, *_tree(client, child)]
    return below
