"""Consumer groups in simulated clusters."""
