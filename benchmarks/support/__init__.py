"""What the benchmarks are made of: rounds, loads, clients, and what they are compared with."""
