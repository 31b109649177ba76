"""The session of a follower: which partitions are due, and whose session it is."""

from storage_engine.broker.requests.follower_sessions import FollowerSession, session_maker
from storage_engine.core.errors import ErrorCode
from storage_engine.tests.broker.requests.test_fetch_sessions import OWNER, Broker, request, wanted


def test_a_followers_session_is_its_own_and_another_incarnation_is_told_of_all_partitions():
    broker = Broker()
    broker.sessions._make = session_maker(lambda _tp: None)
    asked = request(wanted(0, 1), replica_id=2)._replace(replica_epoch=7)
    session_id = broker.fetch(asked).session_id
    (session,) = broker.sessions
    assert isinstance(session, FollowerSession)
    session.due.clear()
    later = request([], session_id, 1, replica_id=2)
    stranger = broker.sessions.begin(later._replace(replica_id=3, replica_epoch=7), OWNER)
    assert stranger.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    same = broker.sessions.begin(later._replace(replica_epoch=7), OWNER)
    assert same.request.partitions == []
    other = broker.sessions.begin(later._replace(session_epoch=2, replica_epoch=8), OWNER)
    assert [each.partition for each in other.request.partitions] == [0, 1]
