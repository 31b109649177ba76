"""The error of a batch that is refused because of some of its records."""

from concurrent.futures import wait

import pytest

from storage_engine.client import Producer
from storage_engine.client.producer.producer_errors import RefusedRecordsError
from storage_engine.core.errors import ErrorCode

WAIT_S = 30


def test_the_wrong_records_are_told_from_the_others(fake):
    fake.add_topic("t", [1])
    partition = fake.partition("t")
    partition.errors.append(ErrorCode.INVALID_RECORD)
    partition.record_errors = [(1, "the record has no key"), (3, None)]
    with Producer({"bootstrap.servers": fake.bootstrap_servers, "linger.ms": 60_000}) as producer:
        futures = [producer.send("t", b"%d" % number, partition=0) for number in range(5)]
        told = {}
        for number, future in enumerate(futures):
            future.add_done_callback(lambda done, at=number: told.update({at: done.exception()}))
        # These get a state of their own.
        assert len(wait(futures[:2], 0).not_done) == 2
        with pytest.raises(RefusedRecordsError):
            producer.flush()
        errors = [future.exception(WAIT_S) for future in futures]
        is_other = [isinstance(error, RefusedRecordsError) for error in errors]
        assert is_other == [True, False, True, False, True]
        assert {error.code for error in errors} == {ErrorCode.INVALID_RECORD}
        assert str(errors[1]) == "t-0: the record has no key"
        assert "because of some of its records" in str(errors[0])
        assert told == dict(enumerate(errors))
        assert not partition.batches
        kept = [producer.send("t", b"%d" % number, partition=0) for number in (0, 2, 4)]
        producer.flush()
        assert [future.result(WAIT_S).offset for future in kept] == [0, 1, 2]
