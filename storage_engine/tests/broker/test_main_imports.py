"""A broker that asks nobody to log in does not load what log-ins need."""

import subprocess
import sys

PROGRAM = """
import sys
from storage_engine.broker.settings.config import BrokerConfig
import storage_engine.broker.main
needed = {"broker.id": "1", "log.dirs": "/d", "zookeeper.connect": "z:1"}
assert BrokerConfig.from_mapping(needed).sasl.inter_broker is None
heavy = {"scramp", "jwt", "cryptography", "urllib.request", "asn1crypto"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def test_a_broker_without_log_ins_loads_no_library_of_theirs() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)
