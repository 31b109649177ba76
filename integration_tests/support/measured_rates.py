"""How fast a client writes that writes as fast as it may. In full over half a minute."""

import time
from collections.abc import Callable, Mapping

from confluent_kafka import Producer

from storage_engine.tests.sampling import ALL_FAULTS

MEASURED_S = 30.0 if ALL_FAULTS else 3.0
RECORD = b"x" * 10_000
BATCH_BYTES = 50_000
TRIES = 3
FIRST_TIMEOUT_S = 30


def produced_bytes_per_s(
    config: Mapping[str, str], topic: str, client_id: str, *, measured_s: float = MEASURED_S
) -> float:
    """What a producer gets acknowledged that writes as fast as it may, once its first burst is
    over."""
    acknowledged = 0
    is_over = False

    def delivered(error: object, _message: object) -> None:
        nonlocal acknowledged
        # At the end the rest is thrown away.
        assert error is None or is_over, error
        acknowledged += len(RECORD)

    producer = Producer(
        {
            **config,
            "client.id": client_id,
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.kbytes": 1024,
            "log_level": 0,
        }
    )

    def write() -> None:
        try:
            producer.produce(topic, RECORD, partition=0, on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)

    def write_for(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            write()

    # To find a broker that was just started may take as long as the burst.
    first_until = time.monotonic() + FIRST_TIMEOUT_S
    while not acknowledged and time.monotonic() < first_until:
        write()
    assert acknowledged, f"nothing was acknowledged in {FIRST_TIMEOUT_S} s"
    write_for(2)
    before, started = acknowledged, time.monotonic()
    write_for(measured_s)
    rate = (acknowledged - before) / (time.monotonic() - started)
    is_over = True
    producer.purge()
    producer.flush(10)
    return rate


def check_is_within(measure: Callable[[], float], bound: float) -> None:
    """A batch more or less at each end, and a tenth. No measurement may be above; one that is below
    is taken again: the machine may have stood still."""
    of_a_batch = 2 * BATCH_BYTES / MEASURED_S
    for _ in range(TRIES):
        rate = measure()
        assert rate <= 1.1 * bound + of_a_batch, rate
        if rate >= 0.9 * bound - of_a_batch:
            return
    raise AssertionError(f"only {rate:,.0f} bytes a second, {TRIES} times")
