"""The controller changes the levels of features, all or none, while brokers support them."""

import pytest

from simulation.world.clock import ProcessLoop
from simulation.world.zookeeper import SimulatedZooKeeper
from storage_engine.broker.controller.feature_store import FeatureStore
from storage_engine.broker.controller.store import ControllerFence
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.features import (
    FIRST_FEATURES,
    GROUP_VERSION,
    SUPPORTED,
    SUPPORTED_BY_FIRST_RELEASE,
    TRANSACTION_VERSION,
    FeatureUpdate,
    UpgradeType,
)
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import ZkOp, ZkOpKind
from storage_engine.tests.zookeeper.lossy_session import (
    ROUND_TRIP_MS,
    LossySession,
    new_server,
    pause,
    settle,
)
from storage_engine.zookeeper.flow import Flows
from storage_engine.zookeeper.znodes.cluster_znodes import (
    BrokerIdZNode,
    ControllerEpochZNode,
    FeatureZNode,
)

PATH = FeatureZNode.PATH
RAISED = (FeatureUpdate(GROUP_VERSION, 1, UpgradeType.UPGRADE),)
LOWERED = (FeatureUpdate(GROUP_VERSION, 0, UpgradeType.SAFE_DOWNGRADE),)


class Controller:
    """One controller epoch, and how its updates ended."""

    def __init__(self, server: SimulatedZooKeeper) -> None:
        process = ProcessLoop(server.loop)
        self.server = server
        self.store = LossySession(server, process)
        self.flows = Flows()
        self.replaced = 0
        self.finalized = FIRST_FEATURES
        self.outcomes: list[KafkaError | None] = []
        self.is_allowed = True
        fence = ControllerFence(
            self.store,
            self.flows,
            epoch_znode_version=server.nodes[ControllerEpochZNode.PATH].version,
            on_replaced=self._on_replaced,
        )
        self.features = FeatureStore(self.store, process, self.flows, fence, lambda: self.finalized)

    def _on_replaced(self) -> None:
        self.replaced += 1

    def update(self, updates=RAISED, *, validate_only: bool = False) -> None:
        self.features.update(
            updates,
            self.outcomes.append,
            check_allowed=self._check_allowed,
            validate_only=validate_only,
        )

    def _check_allowed(self) -> None:
        if not self.is_allowed:
            raise KafkaError(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def outcome(self) -> ErrorCode:
        """The outcome of the one update that was asked for."""
        (outcome,) = self.outcomes
        return ErrorCode.NONE if outcome is None else outcome.code


def levels(server: SimulatedZooKeeper) -> dict[str, int]:
    return dict(FeatureZNode.decode(server.nodes[PATH].data).levels)


def register(server: SimulatedZooKeeper, broker: int, supported=SUPPORTED) -> None:
    node = BrokerIdZNode(broker_id=BrokerId(broker), host="h", port=broker, supported=supported)
    path = BrokerIdZNode.path(broker)
    server.make_parents(path)
    creation = ZkOp(kind=ZkOpKind.CREATE, path=path, data=node.encode(), ephemeral=True)
    server.apply(creation, server.new_session())


@pytest.fixture
def server() -> SimulatedZooKeeper:
    made = new_server()
    made.put(ControllerEpochZNode.PATH, b"1")
    register(made, 1)
    return made


@pytest.fixture
def controller(server: SimulatedZooKeeper) -> Controller:
    made = Controller(server)
    made.features.start()
    settle(server)
    return made


def test_a_cluster_of_an_earlier_release_begins_at_the_lowest_levels(server, controller):
    assert levels(server) == {TRANSACTION_VERSION: 2}
    assert server.nodes[PATH].version == 0


def test_a_level_is_raised_and_lowered_and_counts_as_a_change(server, controller):
    controller.update()
    settle(server)
    assert levels(server) == {TRANSACTION_VERSION: 2, GROUP_VERSION: 1}
    controller.update(LOWERED)
    settle(server)
    assert levels(server) == {TRANSACTION_VERSION: 2}
    assert controller.outcomes == [None, None]
    assert server.nodes[PATH].version == 2


def test_a_level_that_is_there_already_is_not_written_again(server, controller):
    controller.update()
    controller.update()
    settle(server)
    controller.update()
    settle(server)
    assert controller.outcomes == [None] * 3
    assert server.nodes[PATH].version == 1


def test_what_is_only_checked_is_not_written(server, controller):
    controller.update(validate_only=True)
    settle(server)
    assert controller.outcome() is ErrorCode.NONE
    assert server.nodes[PATH].version == 0


def test_levels_of_features_that_this_version_does_not_know_stay(server, controller):
    server.put(PATH, FeatureZNode(levels={"later.version": 3}).encode())
    controller.update()
    settle(server)
    assert levels(server) == {"later.version": 3, GROUP_VERSION: 1}


@pytest.mark.parametrize("data", [None, b"garbage"])
def test_a_level_is_refused_while_a_live_broker_registers_none(server, controller, data):
    register(server, 4, SUPPORTED_BY_FIRST_RELEASE)
    if data is not None:
        server.put(BrokerIdZNode.path(4), data)
    controller.update()
    settle(server)
    assert controller.outcome() is ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 4 supports level 0 only" in str(controller.outcomes[0])
    assert levels(server) == {TRANSACTION_VERSION: 2}


def test_a_level_is_raised_once_that_broker_is_gone(server, controller):
    register(server, 4, SUPPORTED_BY_FIRST_RELEASE)
    server.drop_session(server.nodes[BrokerIdZNode.path(4)].owner)
    controller.update()
    settle(server)
    assert controller.outcome() is ErrorCode.NONE


def test_a_node_without_an_owner_is_no_broker(server, controller):
    server.put(BrokerIdZNode.path(4), b"{}")
    controller.update()
    settle(server)
    assert controller.outcome() is ErrorCode.NONE


def test_rights_that_are_lost_meanwhile_count(server, controller):
    controller.update()
    controller.is_allowed = False
    settle(server)
    assert controller.outcome() is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert levels(server) == {TRANSACTION_VERSION: 2}


def test_a_controller_that_was_replaced_changes_nothing(server, controller):
    controller.update()
    server.loop.run_for(ROUND_TRIP_MS)
    server.put(ControllerEpochZNode.PATH, b"2")
    settle(server)
    assert controller.outcome() is ErrorCode.NOT_CONTROLLER
    assert controller.replaced
    assert levels(server) == {TRANSACTION_VERSION: 2}


def test_an_update_is_answered_also_when_its_controller_ends_meanwhile(server, controller):
    controller.update()
    controller.flows.close()
    settle(server)
    assert controller.outcome() is ErrorCode.NONE
    assert levels(server)[GROUP_VERSION] == 1


def test_a_replaced_controller_makes_no_node(server):
    controller = Controller(server)
    server.put(ControllerEpochZNode.PATH, b"2")
    controller.features.start()
    settle(server)
    assert PATH not in server.nodes
    assert controller.replaced


@pytest.mark.parametrize("what", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("nth", range(5))
def test_without_an_answer_the_levels_are_the_old_or_the_new_ones(server, controller, what, nth):
    controller.update()
    server.loop.run_for(nth * ROUND_TRIP_MS)
    setattr(controller.store, what, True)
    settle(server)
    assert levels(server).get(GROUP_VERSION, 0) in (0, 1)
    outcome = controller.outcome()
    assert outcome in (ErrorCode.NONE, ErrorCode.FEATURE_UPDATE_FAILED)
    if outcome is ErrorCode.NONE:
        assert levels(server)[GROUP_VERSION] == 1
    # The next try finds whatever it is.
    controller.store.lose_answer = controller.store.lose_request = False
    controller.outcomes.clear()
    controller.update()
    settle(server)
    assert controller.outcome() is ErrorCode.NONE
    assert levels(server)[GROUP_VERSION] == 1


@pytest.mark.parametrize("data", [b"garbage", None])
def test_a_node_that_others_remove_or_spoil_is_written_again_as_it_was(server, controller, data):
    controller.update()
    settle(server)
    controller.finalized = FIRST_FEATURES._replace(levels=levels(server))
    if data is None:
        server.drop(PATH)
    else:
        server.put(PATH, data)
    pause(server)
    assert levels(server) == {TRANSACTION_VERSION: 2, GROUP_VERSION: 1}


def test_an_update_of_a_spoilt_node_waits_until_it_is_written_again(server, controller):
    server.put(PATH, b"garbage")
    controller.update()
    pause(server)
    assert controller.outcome() is ErrorCode.NONE
    assert levels(server) == {TRANSACTION_VERSION: 2, GROUP_VERSION: 1}


def test_another_writer_is_not_overwritten_by_what_was_decided_before(server, controller):
    controller.update()
    server.loop.run_for(ROUND_TRIP_MS)
    other = {TRANSACTION_VERSION: 2, "other.version": 1}
    server.put(PATH, FeatureZNode(levels=other).encode())
    pause(server)
    assert controller.outcome() is ErrorCode.NONE
    assert levels(server) == {**other, GROUP_VERSION: 1}
