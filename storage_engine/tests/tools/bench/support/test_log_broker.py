"""The figures of the log in a broker."""

from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main

SMALL = ["--bytes", "4194304", "--large-log", "12582912", "--rounds", "1"]


@in_full
def test_a_broker_is_measured_too(tmp_path, capsys):
    options = ["--partitions", "20", "--producers", "3", "--seconds", "1", "--dir", str(tmp_path)]
    assert main(["bench", "log", *SMALL, *options]) == 0
    table = capsys.readouterr().out
    for what in (
        "20 partitions closed in order: opened by the log alone, s",
        "20 partitions closed in order: RSS of the idle broker, MiB",
        "idle broker: 1000 idle connections, MiB",
        "broker after 12 MiB in and out: RssAnon, MiB",
        "3 durable producers, 1 partition(s): batches per fsync call",
        "3 durable producers, 3 partition(s): batches per round of fsyncs",
    ):
        assert what in table
    assert not list(tmp_path.iterdir())
