"""Checks of a run: invariants after each event, and convergence after the faults."""
