"""The writers that Spark pickles into tasks."""

import pickle

from connector.sink.writers import HeadraceBatchWriter, HeadraceStreamWriter
from connector.tests.options.parsed import sink


def test_the_tasks_and_the_commit_of_a_job_write_the_same_batch():
    writer = HeadraceBatchWriter(sink(topic="t"))
    assert pickle.loads(pickle.dumps(writer))._batch == writer._batch


def test_at_least_once_nothing_is_left_to_commit_or_to_abort():
    """No broker is asked: there is none."""
    options = sink(topic="t", deliveryGuarantee="at-least-once")
    batch, stream = HeadraceBatchWriter(options), HeadraceStreamWriter(options)
    batch.commit([None])
    batch.abort([None])
    stream.commit([None], 7)
    stream.abort([None], 7)
