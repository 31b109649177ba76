"""The transaction coordinators of a broker, and the work of partition leaders for coordinators on
other brokers."""
