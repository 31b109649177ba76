"""The client is imported afresh by each of Spark's worker processes, so it must be light."""

import subprocess
import sys

from storage_engine import client

HEAVY = (
    "asyncio",
    "kafka.protocol",
    "kafka.producer",
    "numpy",
    "pyarrow",
    "kazoo",
    "ssl",
    "scramp",
    "cryptography",
    "jwt",
)


def test_the_client_imports_nothing_heavy():
    code = (
        "import sys, storage_engine.client.fetching.fetch, storage_engine.client.producer.produce;"
        "import storage_engine.client.admin.topics;"
        "from storage_engine.client import Producer;"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there():
    for name in client.__all__:
        assert getattr(client, name) is not None
