"""Features with a gate: brokers of several releases in one cluster, and changes of levels."""
