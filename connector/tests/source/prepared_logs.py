"""Stands for the cluster in tests of a reader's planning."""

from uuid import UUID

from connector.options.offset_specs import EARLIEST, LATEST
from connector.source.data_loss import keep_existing
from connector.source.source_metadata import FoundPartitions, LogSurvey
from storage_engine.core.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Logs:
    """Stands for the cluster: begin and end of each partition."""

    def __init__(self, ends=None):
        self.ends = ends or {T0: (0, 0)}
        self.ids = {"t": UUID(int=1)}
        self.at: dict[int, int] = {}
        """The first offsets at timestamps."""
        self.refused = {}
        self.questions = 0
        self.surveys = 0
        self.metadata_ages = []

    def find(self, subscription, *, max_age_ms=None):
        return FoundPartitions(
            partitions=tuple(sorted(self.ends)),
            missing=(),
            topic_ids=dict(self.ids),
            refused=self.refused,
        )

    def find_all(self, subscription):
        return self.find(subscription)

    def keep_existing(self, ranges, *, max_age_ms=0):
        self.metadata_ages.append(max_age_ms)
        return keep_existing(ranges, set(self.ends), self.ids)

    def survey(self, partitions):
        self.surveys += 1
        latest = {each: self.ends[each][1] for each in partitions}
        return latest, LogSurvey(self, {each: self.ends[each][0] for each in partitions})

    def offsets_at(self, timestamps_ms):
        self.questions += bool(timestamps_ms)
        place = {EARLIEST: 0, LATEST: 1}
        return {
            each: self.at[at] if at in self.at else self.ends[each][place[at]]
            for each, at in timestamps_ms.items()
        }
