"""Plans to drain brokers and to even out their load, and the execution of plans."""
