"""`python -m benchmarks.beside_kafka`: the same as `headrace bench beside-kafka`."""

import sys

from storage_engine.tools.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "beside-kafka", *sys.argv[1:]]))
