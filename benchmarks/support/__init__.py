"""The parts of the benchmarks: rounds, loads, clients, and the sides they are compared with."""
