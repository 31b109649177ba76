"""Whether this broker may act as a leader (R-REP11).

A broker whose ZooKeeper session may be over does not know whether others lead its partitions now.
So it appends nothing and changes no ISR until the controller has sent its new incarnation the
partitions that it leads.
"""

from collections.abc import Callable

from storage_engine.core.errors import ErrorCode, KafkaError


class LeaderLease:
    """The right to lead, held while the session is surely alive and the broker is not fenced."""

    def __init__(self, session_is_valid: Callable[[], bool]) -> None:
        self._session_is_valid = session_is_valid
        self.is_fenced = False

    @property
    def is_held(self) -> bool:
        return not self.is_fenced and self._session_is_valid()

    def check(self) -> None:
        """Raises KafkaError NOT_LEADER_OR_FOLLOWER where other brokers may lead by now."""
        if self.is_fenced or not self._session_is_valid():
            raise KafkaError(
                "this broker lost touch with ZooKeeper and may have been replaced as leader",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )

    def fence(self) -> None:
        """End the lease: the session is lost."""
        self.is_fenced = True

    def unfence(self) -> None:
        """Allow the lease again: the controller has sent the present incarnation all partitions
        that it leads."""
        self.is_fenced = False
