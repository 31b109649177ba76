"""A copy of a log dir has the file that closes the session of its predecessor, who lives."""

import contextlib
import shutil
import signal

from kazoo.client import KazooClient

from integration_tests.support.brokers_by_hand import BrokersByHand
from integration_tests.support.cluster_support import wait_until, zookeeper_for


def test_a_broker_that_starts_on_a_copy_does_not_end_the_session_of_one_that_lives(tmp_path):
    with zookeeper_for(tmp_path / "zookeeper") as connect, contextlib.ExitStack() as stack:
        (tmp_path / "copy").mkdir()
        living = BrokersByHand(tmp_path, connect, ["PLAINTEXT"])
        copied = BrokersByHand(tmp_path / "copy", connect, ["PLAINTEXT"])
        for each in (living, copied):
            stack.callback(each.close)
        # Without a watcher, which would be there before the successor.
        unwatched = {"broker.death.proof": "none"}
        living.start(1, unwatched)
        client = KazooClient(connect)
        stack.callback(client.close)
        stack.callback(client.stop)
        client.start(60)
        session = client.exists("/brokers/ids/1").ephemeralOwner
        of_living = tmp_path / "broker-1" / "data"
        shutil.copytree(of_living, tmp_path / "copy" / "broker-1" / "data")
        copied.start(1, {"zookeeper.session.timeout.ms": "2000"}, is_waited_for=False)
        wait_until(lambda: "is in use" in copied.log(1), "the copy is refused")
        assert client.exists("/brokers/ids/1").ephemeralOwner == session
        assert "session file ignored" in copied.log(1)
        # The very directory: whoever has its lock knows that the owner is dead.
        living.stop(1, signum=signal.SIGKILL)
        living.start(1, unwatched)
        closed = f"predecessor's session id=0x{session % 2**64:x} closed"
        wait_until(lambda: closed in living.log(1), "the successor has closed the session")
