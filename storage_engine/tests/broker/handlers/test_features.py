"""UpdateFeatures in a simulated cluster, and what a change of levels does on every broker."""

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.handlers.administration import features
from storage_engine.broker.wiring import parts
from storage_engine.core.errors import ErrorCode
from storage_engine.core.features import (
    GROUP_VERSION,
    SUPPORTED_BY_FIRST_RELEASE,
    TRANSACTION_VERSION,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis import api_versions
from storage_engine.protocol.messages import update_features
from storage_engine.protocol.messages.update_features import UpdateFeaturesRequest
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode, FeatureZNode

UPGRADE, SAFE = 1, 2
RAISED = (GROUP_VERSION, 1, UPGRADE)
LOWERED = (GROUP_VERSION, 0, SAFE)


def asked(cluster, *updates, version=2, broker=None, **request):
    row = UpdateFeaturesRequest.FeatureUpdateKey
    message = UpdateFeaturesRequest(
        feature_updates=[
            row(
                feature=name,
                max_version_level=level,
                upgrade_type=kind,
                allow_downgrade=kind != UPGRADE,
            )
            for name, level, kind in updates
        ],
        **request,
    )
    if broker is not None:
        return cluster.ask(broker, update_features.API, version, message)
    return cluster.ask_controller(update_features.API, version, message)


def updated(cluster, *updates, **request):
    return cluster.answer(asked(cluster, *updates, **request))


def used(cluster, broker: int) -> int:
    """The level of groups that a broker tells its clients."""
    request = api_versions.ApiVersionsRequest()
    answer = cluster.answer(cluster.ask(broker, api_versions.API, 4, request))
    return next((f.max_version for f in answer.finalized_features if f.name == GROUP_VERSION), 0)


def used_everywhere(cluster) -> set[int]:
    return {used(cluster, broker.id) for broker in cluster.brokers if broker.up}


def written(cluster) -> int:
    return FeatureZNode.decode(cluster.zookeeper.data(FeatureZNode.PATH)).levels.get(
        GROUP_VERSION, 0
    )


def lower(cluster) -> None:
    assert updated(cluster, LOWERED).error_code == 0
    cluster.loop.run_until(lambda: used_everywhere(cluster) == {0})


@pytest.mark.parametrize("version", [0, 1, 2])
def test_levels_change_everywhere_and_the_controller_knows_it_when_it_answers(cluster, version):
    assert used_everywhere(cluster) == {1}
    for update, level in ((LOWERED, 0), (RAISED, 1)):
        answer = updated(cluster, update, version=version)
        assert (answer.error_code, answer.error_message) == (0, None)
        named = [(each.feature, each.error_code) for each in answer.results]
        assert named == ([(GROUP_VERSION, 0)] if version < 2 else [])
        assert used(cluster, cluster.controller.id) == level
        cluster.loop.run_until(lambda level=level: used_everywhere(cluster) == {level})


def test_the_controller_uses_a_level_before_it_says_that_it_is_set(cluster, monkeypatch):
    """Its watch may come later than the answer to its write."""
    known = cluster.controller.parts.cluster.features
    monkeypatch.setattr(known, "_read_again", lambda: None)
    told = []
    respond = features._respond

    def note_level(call, request, failure):
        told.append(known.level(GROUP_VERSION))
        return respond(call, request, failure)

    monkeypatch.setattr(features, "_respond", note_level)
    assert updated(cluster, LOWERED).error_code == 0
    assert told == [0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_present_level_is_confirmed(cluster, version):
    answer = updated(cluster, (TRANSACTION_VERSION, 2, UPGRADE), version=version)
    assert answer.error_code == 0


def test_an_answer_without_a_wait_says_so(cluster):
    answer = updated(cluster, LOWERED, timeout_ms=0)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "describe the features to see" in answer.error_message


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("update", "said"),
    [
        ((TRANSACTION_VERSION, 3, UPGRADE), "the controller supports level 2 only"),
        ((TRANSACTION_VERSION, 0, SAFE), "the controller supports level 2 only"),
        ((GROUP_VERSION, 0, UPGRADE), "an upgrade does not lower it"),
        (("group.vision", 1, UPGRADE), "it knows group.version, transaction.version"),
        (("", 1, UPGRADE), "does not know the feature"),
    ],
)
def test_what_can_not_be_is_refused_for_the_whole_request(cluster, version, update, said):
    answer = updated(cluster, (TRANSACTION_VERSION, 2, UPGRADE), update, version=version)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert said in answer.error_message
    assert answer.results == []
    assert written(cluster) == 1


def test_only_to_validate_changes_nothing(cluster):
    for version in (1, 2):
        assert updated(cluster, LOWERED, version=version, validate_only=True).error_code == 0
    assert written(cluster) == 1
    bad = (GROUP_VERSION, 4, UPGRADE)
    answer = updated(cluster, bad, validate_only=True)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_other_brokers_name_the_controller_s_absence(cluster):
    other = cluster.controller.id % 3 + 1
    answer = updated(cluster, LOWERED, broker=other)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert written(cluster) == 1


@pytest.mark.parametrize("wait_ms", range(0, 14))
def test_a_controller_killed_amid_an_update_leaves_one_level_everywhere(cluster, wait_ms):
    lower(cluster)
    controller = cluster.controller
    answers = asked(cluster, RAISED)
    cluster.loop.run_for(wait_ms)
    controller.kill()
    cluster.loop.run_until(lambda: bool(answers))
    cluster.loop.run_until(lambda: cluster.controller is not None)
    cluster.loop.run_for(5_000)
    level = written(cluster)
    if not isinstance(answers[0], TransportError) and answers[0].error_code == 0:
        assert level == 1
    assert used_everywhere(cluster) == {level}
    controller.start()
    cluster.loop.run_until(lambda: len(cluster[1].metadata.brokers) == 3)
    assert used_everywhere(cluster) == {level}
    assert updated(cluster, RAISED).error_code == 0
    assert written(cluster) == 1


def restart_as_first_release(cluster: SimulatedCluster, broker: int, monkeypatch) -> None:
    """Of what that release does, the registration counts here."""
    cluster[broker].kill()
    with monkeypatch.context() as patch:
        patch.setattr(parts, "SUPPORTED", SUPPORTED_BY_FIRST_RELEASE)
        cluster[broker].start()
    cluster.loop.run_for(20_000)


def test_a_level_is_raised_only_when_the_last_broker_of_an_earlier_release_is_gone(
    cluster, monkeypatch
):
    lower(cluster)
    old = cluster.controller.id % 3 + 1
    restart_as_first_release(cluster, old, monkeypatch)
    answer = updated(cluster, RAISED)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"broker {old} supports level 0 only" in answer.error_message
    assert updated(cluster, RAISED, validate_only=True).error_code == answer.error_code
    cluster[old].kill()
    cluster[old].start()
    cluster.loop.run_for(20_000)
    assert updated(cluster, RAISED).error_code == 0


def test_a_broker_that_does_not_support_the_levels_is_left_out_until_they_are_lowered(
    cluster, monkeypatch
):
    """It does not know that it must not start, and would misread what it leads."""
    assert cluster.create_topic("t").error_code == 0
    tp = TopicPartition("t", 0)
    cluster.wait_in_sync(tp, 1, 2, 3)
    old = cluster.controller.id % 3 + 1
    restart_as_first_release(cluster, old, monkeypatch)
    assert old not in cluster.controller.metadata.brokers
    assert old not in cluster.state(tp).isr
    assert cluster.produced(tp, b"without it") == 0
    # Nobody but the cluster asks it: its levels are lowered without its consent.
    lower(cluster)
    cluster.wait_in_sync(tp, 1, 2, 3)


def test_a_broker_ends_that_hears_of_a_level_it_does_not_support(cluster):
    later = FeatureZNode(levels={"later.version": 1}).encode()
    cluster.zookeeper.put(FeatureZNode.PATH, later)
    cluster.loop.run_for(1_000)
    for broker in cluster.brokers:
        assert "uses later.version at level 1" in str(broker.refused[0])


def test_a_cluster_of_an_earlier_release_begins_at_0_and_keeps_that_after_restarts(cluster):
    for broker in cluster.brokers:
        broker.kill()
    cluster.zookeeper.drop(FeatureZNode.PATH)
    for _ in range(2):
        for broker in cluster.brokers:
            broker.start()
        cluster.loop.run_until(lambda: cluster.controller is not None)
        cluster.loop.run_for(1_000)
        assert used_everywhere(cluster) == {0}
        for broker in cluster.brokers:
            broker.kill()
    assert cluster.zookeeper.nodes[FeatureZNode.PATH].version == 0
    assert int(cluster.zookeeper.data(ControllerEpochZNode.PATH)) > 2


@pytest.mark.parametrize("data", [b"garbage", None])
def test_levels_survive_what_others_do_to_the_node(cluster, data):
    if data is None:
        cluster.zookeeper.drop(FeatureZNode.PATH)
    else:
        cluster.zookeeper.put(FeatureZNode.PATH, data)
    cluster.loop.run_for(5_000)
    assert written(cluster) == 1
    assert used_everywhere(cluster) == {1}
