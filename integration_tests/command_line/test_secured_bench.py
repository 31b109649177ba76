"""`headrace bench secured` measures brokers with TLS, log-ins and quotas.

It leaves nothing behind.
"""

import json

from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main

SMALL = ["--rounds", "1", "--bytes", str(16 << 20), "--requests", "2000", "--seconds", "3"]


@in_full
def test_every_figure_of_security_stands_beside_that_without_it(tmp_path, capsys):
    command = ["bench", "secured", *SMALL, "--without-kafka", "--dir", str(tmp_path), "--json"]
    assert main(command) == 0
    figures = json.loads(capsys.readouterr().out)
    assert len(figures) == 13
    through_tls = [each for each in figures if "SASL_SSL beside PLAINTEXT" in each["what"]]
    assert [each["what"].partition(",")[0] for each in through_tls] == ["produce", "fetch"]
    for each in figures:
        assert each["measured"] > 0
        assert each["limit"] is None or each["limit"] > 0
        assert (each["goal"] is None) == (each["met"] is None)
    assert not list(tmp_path.iterdir()), "it cleans up after itself"
