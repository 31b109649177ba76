"""R-CTL12: a broker whose process has ended is replaced at once; one that lives never is."""

from collections.abc import Iterator

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from simulation.world.network import BASE_PORT
from simulation.world.processes import SimulatedMachine
from storage_engine.broker.cluster.dead_sessions import CLOSE_AGAIN_MS
from storage_engine.core.control.death_proof import PROBE_INTERVAL_MS, PROBES
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Endpoint
from storage_engine.zookeeper.session_credentials import SessionZNode
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode, ControllerZNode

TP = TopicPartition("t", 0)
SOON_MS = SESSION_TIMEOUT_MS // 6


def unwatched(boot_id: str) -> SimulatedMachine:
    """A machine on which no watchers close sessions before the brokers do."""
    return SimulatedMachine(boot_id, has_watchers=False)


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    """Its brokers 1 to 3 run on one machine."""
    made = SimulatedCluster(tmp_path, machines=[unwatched("1")] * 3, broker_death_proof="process")
    assert made.create_topic("t", min_insync_replicas="2").error_code == 0
    made.wait_in_sync(TP, 1, 2, 3)
    yield made
    made.close()


def leader_of(cluster: SimulatedCluster) -> int:
    return cluster.state(TP).leader


def test_another_leads_long_before_the_session_of_a_killed_leader_would_expire(cluster):
    dead = leader_of(cluster)
    cluster[dead].kill()
    cluster.loop.run_until(lambda: leader_of(cluster) not in (-1, dead), limit_ms=SOON_MS)
    assert BrokerIdZNode.path(dead) not in cluster.zookeeper.nodes
    assert cluster.produced(TP, b"x") == 0


def test_a_broker_whose_process_has_ended_is_in_doubt_at_once_also_where_nobody_fetches_from_it(
    cluster,
):
    dead = next(broker for broker in cluster.brokers if broker.id != leader_of(cluster))
    others = [broker for broker in cluster.brokers if broker is not dead]
    cluster.loop.run_for(1_000)
    assert not any(other.parts.cluster.doubts.current() for other in others)
    dead.kill()
    cluster.loop.run_until(
        lambda: all(dead.id in other.parts.cluster.doubts.current() for other in others),
        limit_ms=5,
    )


def test_another_is_controller_long_before_the_session_of_a_killed_one_would_expire(cluster):
    controller = cluster.controller
    controller.kill()
    cluster.loop.run_until(lambda: cluster.controller not in (None, controller), limit_ms=SOON_MS)


def test_only_one_closes_the_session_and_that_is_the_controller(cluster):
    first = cluster.controller
    first.kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.controller not in (None, first))
    first.begin()
    cluster.loop.run_until(lambda: first.broker_epoch > 0)
    cluster.loop.run_for(SOON_MS)
    controller = cluster.controller.id
    assert first.id < controller, "else the order of ids would be the same"
    dead = ({1, 2, 3} - {first.id, controller}).pop()
    asked: list[int] = []
    for broker in cluster.brokers:
        end = broker.foreign_sessions.end

        def noted(*args, b=broker.id, end=end):
            asked.append(b)
            end(*args)

        broker.foreign_sessions.end = noted
    cluster[dead].kill()
    cluster.loop.run_for(SOON_MS)
    assert asked == [controller]


def test_what_the_closing_broker_can_not_do_another_does(cluster):
    controller = cluster.controller
    dead = next(broker for broker in cluster.brokers if broker is not controller)
    controller.foreign_sessions.end = lambda *args: None
    dead.kill()
    path = BrokerIdZNode.path(dead.id)
    cluster.loop.run_until(lambda: path not in cluster.zookeeper.nodes, limit_ms=SOON_MS)


def test_an_attempt_without_an_answer_is_made_again_while_the_session_is_there(cluster):
    dead = cluster[3]
    tries: list[int] = []
    for broker in cluster.brokers[:2]:
        end = broker.foreign_sessions.end

        def first_fails(session_id, password, on_done, *, b=broker.id, end=end):
            tries.append(b)
            if tries.count(b) > 2:
                end(session_id, password, on_done)
            else:
                on_done(False)

        broker.foreign_sessions.end = first_fails
    dead.kill()
    path = BrokerIdZNode.path(3)
    cluster.loop.run_until(
        lambda: path not in cluster.zookeeper.nodes, limit_ms=SESSION_TIMEOUT_MS - 100
    )
    assert max(tries.count(1), tries.count(2)) == 3


def test_a_session_closed_by_all_at_once_ends_once_and_nothing_else(cluster):
    cluster.loop.run_for(100)
    dead = cluster[3]
    session_id = dead.session.session_id
    password = cluster.zookeeper.password_of(session_id)
    dead.kill()
    others = [broker.session.session_id for broker in cluster.brokers[:2]]
    over: list[bool] = []
    for broker in cluster.brokers[:2]:
        broker.foreign_sessions.end(session_id, password, over.append)
    cluster.loop.run_for(SOON_MS)
    assert over == [True, True]
    assert [broker.session.session_id for broker in cluster.brokers[:2]] == others


def test_a_stopped_broker_is_left_to_its_session(cluster):
    dead = leader_of(cluster)
    cluster[dead].pause()
    cluster.loop.run_for(SESSION_TIMEOUT_MS - 500)
    assert leader_of(cluster) == dead
    cluster[dead].resume()


def test_each_incarnation_has_a_session_of_its_own_to_be_closed(cluster):
    for _ in range(3):
        cluster[3].kill(session_ends_at_once=True)
        cluster[3].begin()
        cluster.loop.run_until(lambda: cluster[3].broker_epoch > 0)
        cluster.loop.run_for(100)
        names = cluster.zookeeper.children(SessionZNode.PARENT)
        assert [name for name in names if name.startswith("3-")] == [
            SessionZNode.name(3, cluster[3].session.session_id)
        ]
    cluster[3].kill()
    path = BrokerIdZNode.path(3)
    cluster.loop.run_until(lambda: path not in cluster.zookeeper.nodes, limit_ms=SOON_MS)


def test_a_znode_that_somebody_removes_is_made_again(cluster):
    cluster.loop.run_for(100)
    path = SessionZNode.path(3, cluster[3].session.session_id)
    cluster.zookeeper.drop(path)
    cluster.loop.run_for(1000)
    assert path in cluster.zookeeper.nodes


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"password":"zz"}', b'{"password":"00","process":7}']
)
def test_a_znode_that_is_none_is_ignored(cluster, data):
    cluster.zookeeper.put(f"{SessionZNode.PARENT}/7-1f", data)
    cluster.zookeeper.put(f"{SessionZNode.PARENT}/x", data)
    cluster[3].kill()
    path = BrokerIdZNode.path(3)
    cluster.loop.run_until(lambda: path not in cluster.zookeeper.nodes, limit_ms=SOON_MS)


def test_a_znode_closes_no_session_but_its_owners(cluster):
    """Somebody names the session of a living broker, and a process that ends."""
    victim = cluster[1].session.session_id
    node = SessionZNode(
        password=cluster.zookeeper.password_of(victim), process=cluster[3].process.identity
    )
    cluster.zookeeper.put(SessionZNode.path(9, victim), node.encode())
    cluster.loop.run_for(100)
    cluster[3].kill()
    cluster.loop.run_for(SOON_MS)
    assert victim in cluster.zookeeper.live


def test_the_same_number_on_another_machine_is_another_process(tmp_path):
    shared = unwatched("b")
    machines = [unwatched("a"), shared, shared]
    cluster = SimulatedCluster(tmp_path, machines=machines, broker_death_proof="process")
    cluster.loop.run_for(100)
    assert cluster[1].process.identity.pid == cluster[2].process.identity.pid
    living = cluster[1].session.session_id
    cluster[2].kill()
    path = BrokerIdZNode.path(2)
    cluster.loop.run_until(lambda: path not in cluster.zookeeper.nodes, limit_ms=SOON_MS)
    assert living in cluster.zookeeper.live
    cluster[1].kill()
    cluster.loop.run_for(SOON_MS)
    assert BrokerIdZNode.path(1) in cluster.zookeeper.nodes, "nobody else is there to see it"
    cluster.close()


def test_a_broker_whose_session_another_has_closed_is_fenced_and_registers_anew(cluster):
    cluster.loop.run_for(100)
    leader = leader_of(cluster)
    old_epoch = cluster[leader].broker_epoch
    cluster.zookeeper.close_session(cluster[leader].session.session_id)
    cluster.loop.run_until(lambda: cluster[leader].replicas.lease.is_fenced, limit_ms=SOON_MS)
    cluster.loop.run_until(lambda: cluster[leader].broker_epoch > old_epoch, limit_ms=SOON_MS)
    cluster.wait_in_sync(TP, 1, 2, 3)


def test_the_controllers_node_goes_with_its_session(cluster):
    controller = cluster.controller
    before = cluster.zookeeper.nodes[ControllerZNode.PATH].czxid
    controller.kill()

    def elected() -> bool:
        node = cluster.zookeeper.nodes.get(ControllerZNode.PATH)
        return node is not None and node.czxid != before

    cluster.loop.run_until(elected, limit_ms=SOON_MS)


# --- by ports ---


@pytest.fixture
def apart(tmp_path) -> Iterator[SimulatedCluster]:
    """Brokers of a machine each, for which a refused port is proof."""
    made = SimulatedCluster(tmp_path, broker_death_proof="port")
    assert made.create_topic("t", min_insync_replicas="2").error_code == 0
    assert made.produced(TP, b"x") == 0, "so its followers are connected to the leader"
    yield made
    made.close()


def refuse(cluster: SimulatedCluster, broker: int) -> None:
    """Something between it and the others answers in its name."""
    for other in cluster.brokers:
        if other.id != broker:
            cluster.network.refused.add(frozenset((broker, other.id)))
            cluster.network.cut(broker, other.id)


def test_a_leader_whose_port_refuses_is_replaced(apart):
    dead = leader_of(apart)
    apart[dead].kill()
    apart.loop.run_until(lambda: leader_of(apart) not in (-1, dead), limit_ms=2 * SOON_MS)


def test_a_living_leader_whose_port_refuses_is_deposed_and_comes_back(apart):
    deposed = leader_of(apart)
    epoch = apart[deposed].broker_epoch
    refuse(apart, deposed)
    apart.loop.run_until(lambda: leader_of(apart) not in (-1, deposed), limit_ms=2 * SOON_MS)
    apart.loop.run_until(lambda: apart[deposed].broker_epoch > epoch, limit_ms=SOON_MS)
    apart.network.heal()
    apart.wait_in_sync(TP, 1, 2, 3)


def test_a_session_that_is_closed_is_no_reason_to_close_the_next_one_of_that_broker(apart):
    """It may have another port by now, while the one that was asked refuses for ever."""
    dead = leader_of(apart)
    epoch = apart[dead].broker_epoch
    refuse(apart, dead)
    apart.loop.run_until(lambda: apart[dead].broker_epoch > epoch, limit_ms=3 * SOON_MS)
    epoch = apart[dead].broker_epoch
    apart.loop.run_for(5 * CLOSE_AGAIN_MS)
    assert apart[dead].broker_epoch == epoch


def test_who_is_cut_off_deposes_nobody(apart):
    """It sees all others refuse, as they see it."""
    alone = leader_of(apart)
    others = [broker for broker in apart.brokers if broker.id != alone]
    epochs = [broker.broker_epoch for broker in others]
    refuse(apart, alone)
    apart.loop.run_for(5 * SOON_MS)
    assert [broker.broker_epoch for broker in others] == epochs


def test_silence_is_no_refusal(apart):
    leader = leader_of(apart)
    others = [broker.id for broker in apart.brokers if broker.id != leader]
    apart.network.held_up |= {(leader, other) for other in others}
    apart.network.held_up |= {(other, leader) for other in others}
    apart.network.reset(leader, others[0])
    apart.network.reset(leader, others[1])
    apart.loop.run_for(SOON_MS)
    assert leader_of(apart) == leader


def test_a_port_that_answers_in_between_is_no_proof(apart):
    leader = leader_of(apart)
    epoch = apart[leader].broker_epoch
    refuse(apart, leader)
    apart.loop.run_for(PROBES * PROBE_INTERVAL_MS // 2)
    apart.network.heal()
    apart.loop.run_for(SOON_MS)
    assert apart[leader].broker_epoch == epoch


def test_a_port_that_answers_while_others_have_their_turn_is_no_proof(apart):
    controller = apart.controller
    suspect = 3
    assert controller.id not in (2, suspect), "so the second one has to wait"
    epoch = apart[suspect].broker_epoch
    second = apart[2].parts.cluster.dead_sessions
    for name, peer in second._peers.items():
        if peer.broker_id == suspect:
            second._refused_ports._asked[suspect] = Endpoint(
                broker_id=suspect, host="simulated", port=BASE_PORT + suspect
            )
            second._ports_refuse([name])
    apart.loop.run_for(SOON_MS)
    assert apart[suspect].broker_epoch == epoch


def test_a_proof_by_port_is_made_again_before_another_attempt(apart):
    leader = leader_of(apart)
    epoch = apart[leader].broker_epoch
    tries: list[int] = []
    for broker in apart.brokers:

        def fails(session_id, password, on_done, *, b=broker.id):
            tries.append(b)
            on_done(False)

        broker.foreign_sessions.end = fails
    refuse(apart, leader)
    apart.loop.run_until(lambda: bool(tries), limit_ms=2 * SOON_MS)
    apart.network.heal()
    apart.loop.run_for(5 * SOON_MS)
    assert len(tries) <= 2, "once each"
    assert apart[leader].broker_epoch == epoch


def test_a_refused_port_is_no_proof_of_a_process_that_is_seen_to_live(tmp_path):
    shared = unwatched("1")
    cluster = SimulatedCluster(tmp_path, machines=[shared] * 3, broker_death_proof="port")
    assert cluster.create_topic("t").error_code == 0
    assert cluster.produced(TP, b"x") == 0
    epochs = [broker.broker_epoch for broker in cluster.brokers]
    refuse(cluster, leader_of(cluster))
    cluster.loop.run_for(3 * SOON_MS)
    assert [broker.broker_epoch for broker in cluster.brokers] == epochs
    cluster.close()
