"""The parts of the benchmarks on machines in namespaces that need no machine."""
