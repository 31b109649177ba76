"""The command `headrace`, its benchmarks among them."""
