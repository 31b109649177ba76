"""`python -m benchmarks.typed`: the same as `headrace bench typed`."""

import sys

from storage_engine.tools.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "typed", *sys.argv[1:]]))
