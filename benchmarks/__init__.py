"""Benchmarks: each figure beside a ceiling from the same run. `headrace bench` runs them."""
